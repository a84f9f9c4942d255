"""A cache of filter results for recently stored messages.

A bitmap may report that a filter matches a message although it does not. A reader of the message
therefore has to evaluate the filter again, on properties that were already parsed when the message
was stored. Since most readers follow the writers closely, the results of that time are remembered,
one bit for each message. This is a leaf module of the hot path. It is fully typed, so that mypyc
can compile it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["KnownAnswers"]

#: For each byte, its eight bits as one byte each, lowest bit first.
_SPREAD: Final = [bytes([byte >> bit & 1 for bit in range(8)]) for byte in range(256)]


class _Run:
    """The results for consecutive messages of one queue.

    :param start: queue offset of the first message.
    :param first_place: the place of the first message in the commit log, or an earlier place.
    """

    def __init__(self, start: int, first_log_offset: int) -> None:
        self.start: int = start
        #: The number of results, and the results, one bit each, lowest bit first.
        self.count: int = 0
        self.answers: bytearray = bytearray()
        #: The commit log offsets of the first and the last message. A message outside this range
        #: belongs to another topic of the same name, which was created after a deletion.
        self.first_log_offset: int = first_log_offset
        self.last_log_offset: int = first_log_offset


class KnownAnswers:
    """The results of one filter, by queue."""

    def __init__(self) -> None:
        self._runs: dict[int, _Run] = {}

    @property
    def count(self) -> int:
        """The number of remembered results."""
        return sum([run.count for run in self._runs.values()])

    def note(self, queue_id: int, queue_offset: int, log_offset: int, is_match: bool) -> None:
        """Remember a result.

        :param log_offset: the offset of the message in the commit log.
        """
        run = self._runs.get(queue_id)
        if (
            run is None or queue_offset != run.start + run.count
            or log_offset <= run.last_log_offset
        ):
            run = self._runs[queue_id] = _Run(queue_offset, log_offset)
        bit = run.count & 7
        if bit == 0:
            run.answers.append(1 if is_match else 0)
        elif is_match:
            run.answers[-1] |= 1 << bit
        run.count += 1
        run.last_log_offset = log_offset

    def find(self, queue_id: int, queue_offset: int, log_offset: int, count: int) -> bytes:
        """Return the known results for consecutive messages, a byte each: 1 matches, 0 does not.

        :param queue_offset: the queue offset of the first message.
        :param log_offset: the offset of the first message in the commit log.
        :param count: the number of messages; the result may be shorter, or empty.
        """
        run = self._runs.get(queue_id)
        if run is None or not run.first_log_offset <= log_offset <= run.last_log_offset:
            return b""
        at = queue_offset - run.start
        end = min(at + count, run.count)
        if not 0 <= at < end:
            return b""
        packed = bytes(run.answers[at >> 3 : end + 7 >> 3])
        spread = b"".join([_SPREAD[byte] for byte in packed])
        return spread[at & 7 : (at & 7) + end - at]

    def forget_older(self) -> None:
        """Make room by forgetting the older half of each queue's results."""
        for queue_id, run in list(self._runs.items()):
            half = len(run.answers) // 2
            if half:
                del run.answers[:half]
                run.start += 8 * half
                run.count -= 8 * half
            else:
                del self._runs[queue_id]
