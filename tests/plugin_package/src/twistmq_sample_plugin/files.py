"""The file the plugin leaves in a store, as ``twistmq store check`` and ``dump`` look at it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from twistmq.broker.api import StoredMessage
from twistmq.broker.api.store_files import PluginFiles, Report, StoreFiles, Wanted

__all__ = ["COUNTS_FILES"]


def _path(store: StoreFiles) -> Path:
    return store.root / "config" / "sampleCounts"


class CountsCheck:
    """No more messages can have been stored in the last life than there are records, ever."""

    def __init__(self, store: StoreFiles, report: Report) -> None:
        self._path = _path(store)
        self._report = report
        self._records = 0

    def record(self, place: int, message: StoredMessage, properties: Mapping[str, str]) -> None:
        """A record of the log."""
        self._records += 1

    def finish(self) -> None:
        """The log was passed."""
        if not self._path.exists():
            return
        self._report.counts["sample files"] += 1
        try:
            stored = json.loads(self._path.read_bytes())["stored"]
        except (ValueError, KeyError) as error:
            self._report.problem(self._path, None, "counts", str(error))
            return
        if stored > self._records:
            self._report.problem(self._path, None, f"{self._records} stored at most", str(stored))


def _rows(store: StoreFiles, wanted: Wanted, report: Report) -> Iterator[dict[str, Any]]:
    """How many messages each group consumed of each topic."""
    if _path(store).exists():
        for name, count in json.loads(_path(store).read_bytes())["consumed"].items():
            topic, _, group = name.partition("@")
            if wanted.topic in (None, topic):
                yield {"topic": topic, "group": group, "consumed": count}


def _text(row: Mapping[str, Any]) -> str:
    return f"{row['topic']}  {row['group']}  {row['consumed']}"


COUNTS_FILES: Final = PluginFiles("sample-counts", CountsCheck, _rows, _text)
