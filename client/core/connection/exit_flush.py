"""The end of a program that closed nothing: what it handed over is brought to the brokers.

A program may end while messages of ``send_soon`` are under way, or before the results of its
handlers are committed. Each shell notices the end in its own way and runs :func:`finish`, which
closes nothing: another part of the program may still use the client while it ends.
"""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from twistmq.client.core.connection.client import ClientCore

__all__ = ["finish", "time_of"]

log = logging.getLogger("twistmq.client")

#: The longest time that an end takes, ms, whatever the time-outs of the producers are.
TIME_MAX_MS: Final = 30_000
#: The time that an end takes beyond the longest time-out of a send, ms.
_MORE_MS: Final = 2000
#: How often the end looks whether everything is done, ms.
_LOOK_MS: Final = 5


def time_of(client: ClientCore) -> float:
    """The time after which :func:`finish` gives up, ms."""
    longest_ms = max([client.options.timeout_ms,
                      *[member.send_timeout_ms for member in client.members]])
    return min(longest_ms + _MORE_MS, TIME_MAX_MS)


async def finish(client: ClientCore) -> None:
    """Wait until sends have ended, acknowledgements are at the brokers and all bytes are sent.

    It ends after :func:`time_of` at the latest, with a ``ResourceWarning`` about a client that the
    program has not closed.
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
            # Warnings are errors in this program, which ends anyway.
            log.error("%s", warning)
