"""Key-value configuration: values by namespace and key, kept in one file.

The file is Apache's ``kvConfig.json``: ``{"configTable":{"NAMESPACE":{"KEY":"VALUE"}}}`` on one
line. Differs from Apache: a change that cannot be saved is refused and undone, because a tool
that reads "success" takes the value for kept; and a damaged file falls back to its backup.

Source: KVConfigManager, KVConfigSerializeWrapper @5.3.3.
"""

from __future__ import annotations

from typing import Final

import msgspec
from twisted.logger import Logger

from twistmq.broker.errors import StoreError, WireError
from twistmq.broker.interfaces import IStoreIO
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.wire.bodies import Body, KVTable

__all__ = ["ORDER_TOPIC_NAMESPACE", "KVConfig"]

#: Holds, for each ordered topic, "broker:queues;broker:queues".
#: Source: NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG.
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


class _ConfigTable(Body):
    """The file's contents."""

    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KVConfig:
    """The values and their file.

    :param path: of the file; absolute.
    """

    log = Logger()

    def __init__(self, io: IStoreIO, path: str) -> None:
        self._file = ConfigFile(io, path)
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file, if there is one.

        :raises StoreDamaged: when neither it nor its backup can be read.
        """
        self._file.load(self._decode)

    def _decode(self, text: str) -> None:
        try:
            self._table = _ConfigTable.decode_saved(text.encode()).config_table
        except WireError as error:
            raise ValueError(str(error)) from None

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def table(self, namespace: str) -> KVTable | None:
        """Every value of a namespace; None when it never had one."""
        values = self._table.get(namespace)
        return None if values is None else KVTable(values)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Keep a value.

        :raises StoreError: when the file cannot be written; then nothing changed.
        """
        self._change(namespace, {**self._table.get(namespace, {}), key: value})
        self.log.info("value kept: {namespace} {key} {value}", namespace=namespace, key=key,
                      value=value)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value; the namespace stays, also when it is empty.

        :raises StoreError: when the file cannot be written; then nothing changed.
        """
        values = dict(self._table.get(namespace, {}))
        if values.pop(key, None) is None:
            return
        self._change(namespace, values)
        self.log.info("value forgotten: {namespace} {key}", namespace=namespace, key=key)

    def _change(self, namespace: str, values: dict[str, str]) -> None:
        table = {**self._table, namespace: values}
        try:
            self._file.save(_ConfigTable(table).encode().decode())
        except OSError as error:
            raise StoreError(f"{self._file.path}: {error.strerror}") from error
        self._table = table

    def print_all(self) -> None:
        """Log every value."""
        self.log.info("key-value configuration: {count} namespaces", count=len(self._table))
        for namespace, values in self._table.items():
            for key, value in values.items():
                self.log.info("{namespace} {key} {value}", namespace=namespace, key=key,
                              value=value)
