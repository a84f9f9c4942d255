"""The folders of queues: ``consumequeue/TOPIC/QUEUE_ID``, and the same layout for batch queues.

Source: DefaultMessageStore.loadConsumeQueues @5.3.3.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from twisted.logger import Logger

from twistmq.broker.store.interfaces import IStoreIO

__all__ = ["list_queues"]

_log = Logger()


def list_queues(io: IStoreIO, directory: str) -> Iterator[tuple[str, int]]:
    """List topic and id of each queue that has a directory: ``directory/TOPIC/QUEUE_ID``.

    Names that are not numbers do not belong to the store and are left alone, as are files next to
    the topics.

    :raises OSError: when a directory cannot be read.
    """
    for topic in io.list_directory(directory):
        try:
            names = io.list_directory(f"{directory}/{topic}")
        except NotADirectoryError:
            _log.warn("{directory}/{topic} is not a topic's folder and is left alone",
                      directory=directory, topic=topic)
            continue
        for name in names:
            if name.isdecimal():
                # Share one string object for a name, as all tables of topics do.
                yield sys.intern(topic), int(name)
