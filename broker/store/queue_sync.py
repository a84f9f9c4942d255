"""A sync of the written files of many queues, on several threads that share the paths.

Source: FlushConsumeQueueService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain

from twistmq.broker.store.interfaces import IStoreIO

__all__ = ["QueueSync"]

#: The number of paths for which one more thread is worthwhile.
_SYNCS_PER_THREAD = 4
#: The maximum number of paths that a thread takes at a time; each such step costs as much as one
#: sync.
_SYNCS_AT_A_TIME = 64


class QueueSync:
    """A job that syncs the written files of queues.

    :param paths: files, and directories that contain new names.
    """

    def __init__(self, io: IStoreIO, paths: set[str]) -> None:
        #: The paths that are not synced: at first all of them, then those with a failed sync.
        self.paths = paths
        self._io = io

    def __call__(self) -> None:
        """Sync all paths, even after one has failed. Blocks.

        :raises OSError: one of the failures, if there were any.
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
        """Sync some paths, one after the other.

        :returns: for each path its error, or None.
        """
        return [self._sync(path) for path in paths]

    def _sync(self, path: str) -> OSError | None:
        """Sync one path.

        :returns: its error, or None.
        """
        try:
            # A file that has been removed since needs no sync.
            with suppress(FileNotFoundError):
                self._io.sync_path(path)
        except OSError as error:
            return error
        return None
