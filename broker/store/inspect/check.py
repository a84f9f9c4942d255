"""``twistmq store check``: compares all parts of a store with each other.

Source: CommitLog, ConsumeQueue, IndexFile, StoreCheckpoint, ConfigManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.inspect.index_check import IndexCheck
from twistmq.broker.store.inspect.json_files import check_json_file
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.ledger_check import LedgerCheck, LedgerFiles
from twistmq.broker.store.inspect.log_walk import LogWalk
from twistmq.broker.store.inspect.plugin_files import IsolatedCheck, PluginFiles
from twistmq.broker.store.inspect.queue_check import QueueCheck
from twistmq.broker.store.inspect.report import Report
from twistmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    LmqConsumerOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.errors import StoreDamaged, WireError
from twistmq.protocol.topic_names import can_be_directory

__all__ = ["KERNEL_TABLES", "StoreCheck"]

#: The times in the checkpoint and their positions, in bytes. The two offsets after them describe a
#: slave's master and may be ahead of the slave's own data.
_TIMES: Final = (("physic_msg_timestamp", 0), ("logics_msg_timestamp", 8),
                 ("index_msg_timestamp", 16))
#: The rows with which every summary begins.
_COUNTED: Final = ("commit-log files", "records", "queues", "queue files", "queue entries",
                   "index files", "index items", "configuration files")


def _decode_topics(data: bytes) -> None:
    """Decode a table of topics.

    :raises WireError: when the data is not a table of topics, or a topic cannot name a folder.
    """
    table = TopicConfigSerializeWrapper.decode_saved(data).topic_config_table
    for name, config in table.items():
        if name != config.topic_name or not can_be_directory(name):
            raise WireError(f"{name[:200]!r} is not a valid topic")


#: The decoders of the tables of the kernel.
KERNEL_TABLES: Final[dict[str, Callable[[bytes], object]]] = {
    "topics.json": _decode_topics,
    "subscriptionGroup.json": SubscriptionGroupWrapper.decode_saved,
    "consumerOffset.json": ConsumerOffsetSerializeWrapper.decode_saved,
    "lmqConsumerOffset.json": LmqConsumerOffsetSerializeWrapper.decode_saved,
}


class StoreCheck:
    """One check of a store.

    :param report: receives the disagreements.
    :param index_slots: the number of slots of each index file; with None it is determined.
    :param plugins: the files that plugins keep in a store.
    """

    def __init__(
        self, store: StoreFiles, report: Report, index_slots: int | None = None,
        plugins: Sequence[PluginFiles] = (),
    ) -> None:
        self._store = store
        self._report = report
        # The order matters: the known state of the log must not be older than the data that points
        # into it.
        self._checkpoint = self._load_checkpoint()
        self._queues = QueueCheck(store, report, self._checkpoint.logics_msg_timestamp)
        self._index = IndexCheck(store, report, index_slots, self._advance_items)
        ledger = None if store.ledger is None else LedgerFiles(store.reader, store.ledger)
        self._plugins = [IsolatedCheck(files, store, report) for files in plugins]
        #: The decoders of the tables in ``config``, by file name.
        self._tables: dict[str, Callable[[bytes], object]] = dict(KERNEL_TABLES)
        for files in plugins:
            self._tables.update(files.tables)
        self._advance: Callable[[int], object] = int
        self._entries = None if ledger is None else LedgerCheck(
            ledger, store.log, report, store.running)
        self.length = store.log_end - store.log_begin + self._index.item_count

    def run(self, advance: Callable[[int], object] = int) -> None:
        """Check everything.

        :param advance: called with the progress, ``length`` in all.
        """
        self._advance = advance
        for name in _COUNTED:
            # Set the order of the rows; the queues' snapshot has already created some of them.
            self._report.counts[name] = self._report.counts.pop(name, 0)
        self._check_config()
        self._index.check_structure()
        self._queues.start()
        newest_ms = -1
        entries = self._entries
        for log_offset, message in LogWalk(
                self._store, self._report, advance, entries).records():
            properties = message.properties_map()
            self._queues.record(log_offset, message, properties)
            self._index.record(log_offset, message, properties)
            for plugin in self._plugins:
                plugin.record(log_offset, message, properties)
            newest_ms = max(newest_ms, message.store_timestamp)
            self._report.counts["records"] += 1
        self._queues.finish()
        self._index.finish()
        if entries is not None:
            entries.finish()
        for plugin in self._plugins:
            plugin.finish()
        self._check_checkpoint(newest_ms)
        self._store.report_strange(self._report)
        self._report.finish()

    def _advance_items(self, count: int) -> None:
        self._advance(count)

    def _load_checkpoint(self) -> Checkpoint:
        try:
            return self._store.load_checkpoint()
        except StoreDamaged as error:
            path = self._store.root / "checkpoint"
            self._report.problem(path, None, "numbers that are not negative",
                                 str(error).removeprefix(f"{path}: "))
            return Checkpoint()

    def _check_checkpoint(self, newest_ms: int) -> None:
        """Report times that are later than the newest record; without records nothing can be
        compared."""
        path = self._store.root / "checkpoint"
        for name, position in _TIMES:
            value = getattr(self._checkpoint, name)
            if 0 <= newest_ms < value:
                self._report.problem(
                    path, position, f"{name} not after the newest record's time, {newest_ms}",
                    str(value))

    def _check_config(self) -> None:
        """Report files in ``config`` that a broker cannot read."""
        directory = self._store.root / "config"
        for path in sorted(directory.glob("*.json")) if directory.is_dir() else ():
            decode = self._tables.get(path.name)
            if decode is None:
                check_json_file(path, self._report, self._store.running)
            else:
                check_json_file(path, self._report, self._store.running, decode,
                                "a table that a broker reads")
