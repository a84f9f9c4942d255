"""A sync of what was written of many queues: several threads, each with some of the paths.

Source: FlushConsumeQueueService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain

from twistmq.broker.store.interfaces import IStoreIO

__all__ = ["QueueSync"]

#: Paths that are worth one more thread that syncs.
_SYNCS_PER_THREAD = 4
#: Paths that a thread takes at a time, at most: each time costs as much as syncing one.
_SYNCS_AT_A_TIME = 64


class QueueSync:
    """A job that syncs what was written of queues.

    :param paths: files, and directories that got new names.
    """

    def __init__(self, io: IStoreIO, paths: set[str]) -> None:
        #: Files that are not synced: all, then those that failed.
        self.paths = paths
        self._io = io

    def __call__(self) -> None:
        """Sync each, also behind one that fails. Blocks.

        :raises OSError: a failure, when there was any.
        """
        paths = sorted(self.paths)
        count = min(self._io.syncs_at_once, len(paths) // _SYNCS_PER_THREAD)
        if count > 1:
            size = min(_SYNCS_AT_A_TIME, len(paths) // count)
            parts = [paths[at : at + size] for at in range(0, len(paths), size)]
            with ThreadPoolExecutor(count, "sync") as pool:
                results = list(chain.from_iterable(pool.map(self._sync_part, parts)))
        else:
            results = self._sync_part(paths)
        failures = {path: error for path, error in zip(paths, results, strict=True)
                    if error is not None}
        self.paths &= failures.keys()
        for error in failures.values():
            raise error

    def _sync_part(self, paths: Sequence[str]) -> list[OSError | None]:
        """Sync some, one after the other; :returns: for each why it could not be."""
        return [self._sync(path) for path in paths]

    def _sync(self, path: str) -> OSError | None:
        """Sync one; :returns: why it could not be."""
        try:
            # A file that is removed meanwhile needs no sync.
            with suppress(FileNotFoundError):
                self._io.sync_path(path)
        except OSError as error:
            return error
        return None
