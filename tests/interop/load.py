"""Senders that never stop: several connections with many messages in flight, during kills.

A body is ``<run/sender/number>`` and some filling; which answer each got is kept. After a lost
connection a sender connects again; messages without an answer may be stored or not.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator
from typing import Final

from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError

__all__ = ["Load"]

#: Between two tries to connect, seconds.
_PAUSE: Final = 0.05
#: How long an answer may take, seconds: the machine has other work.
_ANSWER_SECONDS: Final = 60.0


class Load:
    """Sends to one broker until it is stopped; a ``with`` block ends it.

    :param run: the first number of its bodies; another for each load of a test.
    :param size_max: of the filling, bytes; most are much smaller.
    :param pause: of a sender between two sends, seconds.
    """

    def __init__(
        self, address: str, run: int = 0, *, senders: int = 4, window: int = 64,
        size_max: int = 4000, topic: str = "T", pause: float = 0,
    ) -> None:
        self.address, self.run, self.topic = address, run, topic
        self._window, self._size_max, self._pause = window, size_max, pause
        self._lock = threading.Lock()
        #: By body the code of its answer.
        self.answers: dict[bytes, int] = {}
        self.counts: Counter[int] = Counter()
        self.failures: list[str] = []
        self._answered = time.monotonic()
        self._stops = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(number,), daemon=True)
                         for number in range(senders)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more; the answers that are due are awaited."""
        self._stops.set()
        for thread in self._threads:
            thread.join()

    @property
    def acknowledged(self) -> set[bytes]:
        """Return the bodies that were answered with 0."""
        with self._lock:
            return {body for body, code in self.answers.items() if code == ResponseCode.SUCCESS}

    def count(self, code: int = ResponseCode.SUCCESS) -> int:
        """Return the number of answers with a code."""
        return self.counts[code]

    def wait_for(self, more: int, code: int = ResponseCode.SUCCESS, seconds: float = 120) -> float:
        """Wait for so many more answers with a code; :returns: how long that took, seconds."""
        begin, wanted = time.monotonic(), self.counts[code] + more
        wait_until(f"{more} answers {code}", lambda: self.counts[code] >= wanted, seconds)
        return time.monotonic() - begin

    def wait_for_any(self, codes: Collection[int], seconds: float = 120) -> None:
        """Wait for an answer with one of some codes."""
        def count() -> int:
            return sum(self.counts[code] for code in codes)

        before = count()
        wait_until(f"an answer of {codes}", lambda: count() > before, seconds)

    def rate(self, seconds: float) -> float:
        """Return the answers with 0 a second, over some time."""
        begin, before = time.monotonic(), self.count()
        self._stops.wait(seconds)
        return (self.count() - before) / (time.monotonic() - begin)

    def silence(self) -> float:
        """Return the seconds since the last answer."""
        return time.monotonic() - self._answered

    # --- one sender

    def _work(self, sender: int) -> None:
        chance = random.Random(f"{self.run}/{sender}")
        numbers = itertools.count()
        while not self._stops.is_set():
            try:
                with RawClient(self.address, _ANSWER_SECONDS) as client:
                    self._send(client, sender, numbers, chance)
            except BrokerError:
                # The broker is away. A number is not used again.
                self._stops.wait(_PAUSE)
            except Exception as error:
                self.failures.append(repr(error))
                return

    def _send(
        self, client: RawClient, sender: int, numbers: Iterator[int], chance: random.Random
    ) -> None:
        """Send until it is stopped, or the connection is lost."""
        waiting: deque[tuple[bytes, int]] = deque()
        while not self._stops.is_set():
            body = b"<%d/%d/%d>" % (self.run, sender, next(numbers))
            header = send_header(self.topic, 1_700_000_000_000, queue_id=sender)
            waiting.append((body, client.begin(
                RequestCode.SEND_MESSAGE_V2, header,
                body + b"x" * int(self._size_max ** chance.random()))))
            if len(waiting) >= self._window:
                self._take(client, *waiting.popleft())
            if self._pause:
                self._stops.wait(self._pause)
        while waiting:
            self._take(client, *waiting.popleft())

    def _take(self, client: RawClient, body: bytes, opaque: int) -> None:
        """Wait for an answer, and note it."""
        code = client.reply(opaque).code
        with self._lock:
            self.answers[body] = code
            self.counts[code] += 1
            self._answered = time.monotonic()
