"""Files that plugins keep in a store: how each plugin's are checked and listed.

Only the plugin knows what its files say, so it brings the check, and what ``dump`` prints of them.
A fault of a plugin is a disagreement: what was not looked at must not pass for whole.

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
    """One check of a plugin's files.

    It is made before the end of the commit log is fixed: what it reads then points to no record
    that comes later, beside a running broker too.
    """

    def record(self, place: int, message: StoredMessage, properties: Mapping[str, str]) -> None:
        """A record of the commit log; they come in its order."""

    def finish(self) -> None:
        """All records were passed; what is wrong is reported now, or was before."""


@dataclass(frozen=True, slots=True, eq=False)
class PluginFiles:
    """The files of a plugin in a store.

    :param name: what ``store dump --view`` calls it, such as ``timers``.
    :param check: makes the check of one store; the report takes what is wrong, by file and byte.
    :param rows: lists what is there and wanted, a mapping of JSON values each, for ``store dump``.
    :param text: makes of such a row the lines that are printed without ``--json``.
    :param tables: how files of ``config`` are read, by their names: a function takes the bytes, and
        raises ValueError or WireError when the plugin would not read them.
    """

    name: str
    check: Callable[[StoreFiles, Report], FilesCheck] | None = None
    rows: Callable[[StoreFiles, Wanted, Report], Iterable[Mapping[str, Any]]] | None = None
    text: Callable[[Mapping[str, Any]], str] = str
    tables: Mapping[str, Callable[[bytes], object]] = field(default_factory=dict)


class IsolatedCheck:
    """The check of one plugin's files, which ends where the plugin raises.

    :raises OSError, StoreError: what the disk says is no fault of the plugin.
    """

    def __init__(self, files: PluginFiles, store: StoreFiles, report: Report) -> None:
        self._name = files.name
        self._store = store
        self._report = report
        self._check: FilesCheck | None = None
        if files.check is not None:
            self._check = self._guard(files.check, store, report)

    def record(self, place: int, message: StoredMessage, properties: Mapping[str, str]) -> None:
        """A record of the commit log."""
        if self._check is not None:
            self._guard(self._check.record, place, message, properties)

    def finish(self) -> None:
        """All records were passed."""
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
    files: PluginFiles, store: StoreFiles, wanted: Wanted, report: Report
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """List what a plugin keeps, up to where it raises.

    :returns: each row, and its text.
    :raises OSError, StoreError: what the disk says is no fault of the plugin.
    """
    assert files.rows is not None, files.name
    try:
        for row in files.rows(store, wanted, report):
            yield row, files.text(row)
    except (OSError, StoreError):
        raise
    except FAULTS as error:
        _report_fault(files.name, error, store, report)


def _report_fault(name: str, error: BaseException, store: StoreFiles, report: Report) -> None:
    report.problem(store.root, None, f"{name} to be read to the end",
                   f"{type(error).__name__}: {error}")
