"""Points in time: one rule applies to every argument and option."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from twistmq import client
from twistmq.client import MessageQueue, OptionError
from twistmq.client.base.times import unix_ms
from twistmq.client.testing import RecordingProducer

NAMESRV: Final = "127.0.0.1:9"
QUEUE: Final = MessageQueue("T", "b", 0)

#: The same moment in each form that a program may give, and the moment in Unix ms.
SAME: Final[list[object]] = [
    datetime(2026, 1, 31, 12, tzinfo=UTC),
    datetime(2026, 1, 31, 14, tzinfo=timezone(timedelta(hours=2))),
    datetime.fromtimestamp(1_769_860_800), 1_769_860_800, 1_769_860_800.0]
SAME_MS: Final = 1_769_860_800_000
#: Values that are not a point in time, and a word of the error.
WRONG: Final[list[tuple[object, str]]] = [
    (1_769_860_800_000, "milliseconds"), (float("nan"), "seconds since 1970"),
    (float("inf"), "milliseconds"), (True, "datetime"), (b"0", "datetime"),
    (date(2026, 1, 31), "datetime"), (timedelta(1), "datetime"),
    (Decimal(5), "datetime"), (datetime.min, "year")]


def _deliver_at(time: Any) -> int:
    producer = RecordingProducer()
    ready = producer._sender.prepare(client.Message("T", b"x", deliver_at=time))
    [text] = [part for part in ready.properties.split("\2") if part.startswith("TIMER_DELIVER_MS")]
    return int(text.partition("\1")[2])


def _start(kind: str) -> Callable[[Any], int]:
    def start(time: Any) -> int:
        with getattr(client, kind)(NAMESRV, group="g", topics="T", start=time) as consumer:
            return int(consumer._member.options.start)

    return start


def _seek(time: Any) -> int:
    with client.PullConsumer(NAMESRV, group="g", topics="T") as consumer:
        sought: list[int] = []

        async def seek_to_time(queue: MessageQueue, time_ms: int) -> None:
            sought.append(time_ms)

        consumer._pull.positions.seek_to_time = seek_to_time  # type: ignore[method-assign]
        consumer.seek_to_time(QUEUE, time)
        return sought[0]


def _search(time: Any) -> int:
    with client.Client(NAMESRV) as own_client:
        searched: list[int] = []

        async def search_offset(queue: MessageQueue, time_ms: int) -> int:
            searched.append(time_ms)
            return 0

        own_client._queries.search_offset = search_offset  # type: ignore[method-assign]
        own_client.search_offset(QUEUE, time)
        return searched[0]


#: What takes a point in time: a function that returns the Unix ms that the core gets.
TAKERS: Final[dict[str, Callable[[Any], int]]] = {
    "unix_ms": lambda time: unix_ms(time, "time"),
    "Message(deliver_at=)": _deliver_at,
    "Consumer(start=)": _start("Consumer"),
    "PullConsumer(start=)": _start("PullConsumer"),
    "PullConsumer.seek_to_time": _seek,
    "Client.search_offset": _search,
}


class TimeTests(SynchronousTestCase):
    """The table of all places that accept a point in time."""

    def test_each_place_takes_each_form_of_a_time(self) -> None:
        """A datetime with or without a zone, and seconds since 1970, are the same moment."""
        for name, taker in TAKERS.items():
            for time in SAME:
                self.assertEqual(taker(time), SAME_MS, msg=f"{name}: {time!r}")
            self.assertEqual(taker(0.0006), 1, msg=name)

    def test_each_place_refuses_what_is_not_a_time(self) -> None:
        """The error has the value and the accepted forms."""
        for name, taker in TAKERS.items():
            for time, word in WRONG:
                error = self.assertRaises(OptionError, taker, time)
                self.assertIn(word, str(error), msg=f"{name}: {time!r}")

    def test_a_pop_begins_at_no_time(self) -> None:
        """The error and the help say so."""
        for time in SAME:
            error = self.assertRaises(OptionError, client.PopConsumer, NAMESRV, group="g",
                                      topics="T", start=time)
            self.assertIn("brokers cannot pop from a time", str(error))
        self.assertIn("brokers cannot pop from a time", client.PopConsumer.__doc__ or "")
        self.assertNotIn("or a time", client.PopConsumer.__doc__ or "")
