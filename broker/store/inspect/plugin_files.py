"""Files that plugins keep in a store: how the files of each plugin are checked and listed.

Only the plugin knows the format of its files, so it provides the check, and the text that ``dump``
prints. An error of a plugin counts as a disagreement, because files that were not checked must not
pass as intact.

Source: design of twistmq.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from twistmq.broker.errors import FAULTS
from twistmq.broker.store.inspect.dump import Wanted
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.report import Report
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import StoredMessage

__all__ = ["FilesCheck", "IsolatedCheck", "PluginFiles", "isolated_rows"]


class FilesCheck(Protocol):
    """One check of the files of a plugin.

    It is created before the end of the commit log is determined. The data that it reads then never
    points to a later record, even while a broker is running.
    """

    def record(
        self, log_offset: int, message: StoredMessage, properties: Mapping[str, str]
    ) -> None:
        """Process a record of the commit log; records arrive in its order."""

    def finish(self) -> None:
        """Finish after the last record; all faults must be reported by the end of this call."""


@dataclass(frozen=True, slots=True, eq=False)
class PluginFiles:
    """The files of a plugin in a store.

    :param name: the name in ``store dump --view``, such as ``timers``.
    :param check: creates the check of one store; faults go to the report, by file and position.
    :param rows: lists the matching data for ``store dump``, as mappings of JSON values.
    :param text: formats such a row as the lines that are printed without ``--json``.
    :param tables: the decoders of files in ``config``, by file name: a function takes the bytes,
        and raises ValueError or WireError when the plugin would not read them.
    """

    name: str
    check: Callable[[StoreFiles, Report], FilesCheck] | None = None
    rows: Callable[[StoreFiles, Wanted, Report], Iterable[Mapping[str, Any]]] | None = None
    text: Callable[[Mapping[str, Any]], str] = str
    tables: Mapping[str, Callable[[bytes], object]] = field(default_factory=dict)


class IsolatedCheck:
    """The check of one plugin's files, which ends when the plugin raises an error.

    :raises OSError, StoreError: errors of the disk, which are not faults of the plugin.
    """

    def __init__(self, files: PluginFiles, store: StoreFiles, report: Report) -> None:
        self._name = files.name
        self._store = store
        self._report = report
        self._check: FilesCheck | None = None
        if files.check is not None:
            self._check = self._guard(files.check, store, report)

    def record(
        self, log_offset: int, message: StoredMessage, properties: Mapping[str, str]
    ) -> None:
        """Process a record of the commit log."""
        if self._check is not None:
            self._guard(self._check.record, log_offset, message, properties)

    def finish(self) -> None:
        """Finish after the last record."""
        if self._check is not None:
            self._guard(self._check.finish)

    def _guard(self, call: Callable[..., Any], *arguments: object) -> Any:
        try:
            return call(*arguments)
        except (OSError, StoreError):
            raise
        except FAULTS as error:
            self._check = None
            _report_fault(self._name, error, self._store, self._report)
            return None


def isolated_rows(
    files: PluginFiles, store: StoreFiles, conditions: Wanted, report: Report
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """List the data of a plugin, up to the point where it raises an error.

    :returns: each row, and its text.
    :raises OSError, StoreError: errors of the disk, which are not faults of the plugin.
    """
    assert files.rows is not None, files.name
    try:
        for row in files.rows(store, conditions, report):
            yield row, files.text(row)
    except (OSError, StoreError):
        raise
    except FAULTS as error:
        _report_fault(files.name, error, store, report)


def _report_fault(name: str, error: BaseException, store: StoreFiles, report: Report) -> None:
    report.problem(store.root, None, f"{name} to be read to the end",
                   f"{type(error).__name__}: {error}")
