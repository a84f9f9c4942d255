"""The end of a program that closed nothing: its messages and results are still sent to brokers.

A program may end while messages of ``send_soon`` are in flight, or before the results of its
handlers are committed. Each shell detects the end in its own way and runs :func:`finish`, which
closes nothing: another part of the program may still use the client while the program ends.
"""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from twistmq.client.core.connection.client import ClientCore

__all__ = ["finish", "time_of"]

log = logging.getLogger("twistmq.client")

#: The longest time that the end may take in ms, even if the time-outs of producers are longer.
TIME_MAX_MS: Final = 30_000
#: The time that the end may take beyond the longest time-out of a send, in ms.
_MORE_MS: Final = 2000
#: How often the end checks whether everything is done, in ms.
_LOOK_MS: Final = 5


def time_of(client: ClientCore) -> float:
    """Return the time after which :func:`finish` gives up, in ms."""
    longest_ms = max([client.options.timeout_ms,
                      *[member.send_timeout_ms for member in client.members]])
    return min(longest_ms + _MORE_MS, TIME_MAX_MS)


async def finish(client: ClientCore) -> None:
    """Wait until sends have ended, brokers have all acknowledgements and all bytes are sent.

    The wait lasts at most :func:`time_of`. If the program has not closed the client by then, a
    ``ResourceWarning`` reports it.
    """
    tasks = client.tasks
    deadline_ms = tasks.now_ms + time_of(client)
    finishing = [tasks.spawn(member.finish(), "end of the program")
                 for member in list(client.members)]
    for each in finishing:
        # A failure is logged where it happens.
        each.when_done(lambda _: None)
    while tasks.now_ms < deadline_ms and not client.is_closed and not (
            all(each.is_done for each in finishing) and client.is_quiet):
        await tasks.sleep(_LOOK_MS)
    for each in finishing:
        each.cancel()
    if not client.is_closed:
        try:
            warnings.warn(f"never closed: {client!r}", ResourceWarning, stacklevel=1, source=client)
        except ResourceWarning as warning:
            # The program has turned warnings into errors, but it ends anyway.
            log.error("%s", warning)
