"""Log lines about the hosts that connect to a port, limited for each host."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from twistmq.broker.api.observe import LineRate

__all__ = ["HostLines"]

#: The number of pairs of host and kind of log line that are remembered.
_KEPT: Final = 256


class HostLines:
    """Writes the lines of each kind about each host, a few in a minute, and counts the others.

    One host therefore cannot hide the lines about another one.

    :param now_ms: the clock of the minutes.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._rates: OrderedDict[tuple[str, str], LineRate] = OrderedDict()

    def write(
        self, write: Callable[..., None], peer: str, text: str, **values: object
    ) -> None:
        """Write a line, or only count it.

        :param write: a method of a logger.
        :param peer: "host:port", which the text may contain as ``{peer}``.
        :param text: the line, which must not contain what the peer has sent.
        """
        key = peer.rpartition(":")[0], text
        rate = self._rates.pop(key, None) or LineRate()
        self._rates[key] = rate
        if len(self._rates) > _KEPT:
            self._rates.popitem(last=False)
        left_out = rate.left_out(self._now_ms())
        if left_out is not None:
            write(text + "{more}", peer=peer, **values,
                  more=f" ({left_out} lines left out)" if left_out else "")
