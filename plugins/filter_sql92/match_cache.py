"""Results of filters for messages as they were stored, as long as there is room.

A bitmap may say that a filter wants a message it does not want; who reads the message has to ask
again, of properties that were read when it was stored. Most readers are close behind the writers:
what was said is remembered, a bit a message. Leaf module of the hot path: typed, so that mypyc
compiles it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["KnownAnswers"]

#: The eight answers of a byte, a byte each, the lowest bit first.
_SPREAD: Final = [bytes([byte >> bit & 1 for bit in range(8)]) for byte in range(256)]


class _Run:
    """Answers for consecutive messages of one queue.

    :param start: queue offset of the first.
    :param first_place: its place in the commit log, or one before it.
    """

    def __init__(self, start: int, first_place: int) -> None:
        self.start: int = start
        #: How many there are, and they themselves, a bit each, the lowest first.
        self.count: int = 0
        self.answers: bytearray = bytearray()
        #: Where the first and the last of the messages are: one that lies elsewhere is not of
        #: them, its topic was deleted and made again.
        self.first_place: int = first_place
        self.last_place: int = first_place


class KnownAnswers:
    """The answers of one filter, by queue."""

    def __init__(self) -> None:
        self._runs: dict[int, _Run] = {}

    @property
    def count(self) -> int:
        """How many are known."""
        return sum([run.count for run in self._runs.values()])

    def note(self, queue_id: int, queue_offset: int, place: int, wanted: bool) -> None:
        """Remember an answer.

        :param place: of the message in the commit log.
        """
        run = self._runs.get(queue_id)
        if (
            run is None or queue_offset != run.start + run.count
            or place <= run.last_place
        ):
            run = self._runs[queue_id] = _Run(queue_offset, place)
        bit = run.count & 7
        if bit == 0:
            run.answers.append(1 if wanted else 0)
        elif wanted:
            run.answers[-1] |= 1 << bit
        run.count += 1
        run.last_place = place

    def find(self, queue_id: int, queue_offset: int, place: int, count: int) -> bytes:
        """The known results for consecutive messages, a byte for each: 1 it is wanted, 0 it is not.

        :param queue_offset: of the first.
        :param place: of the first, in the commit log.
        :param count: how many are asked for; it may be known of fewer, or of none.
        """
        run = self._runs.get(queue_id)
        if run is None or not run.first_place <= place <= run.last_place:
            return b""
        at = queue_offset - run.start
        end = min(at + count, run.count)
        if not 0 <= at < end:
            return b""
        packed = bytes(run.answers[at >> 3 : end + 7 >> 3])
        spread = b"".join([_SPREAD[byte] for byte in packed])
        return spread[at & 7 : (at & 7) + end - at]

    def forget_older(self) -> None:
        """Make room: forget the older half of each queue's."""
        for queue_id, run in list(self._runs.items()):
            half = len(run.answers) // 2
            if half:
                del run.answers[:half]
                run.start += 8 * half
                run.count -= 8 * half
            else:
                del self._runs[queue_id]
