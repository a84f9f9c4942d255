"""Unique ids: their format, and their difference over threads, forks, months and clocks."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import closing
from datetime import datetime
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from twistmq.client.core.producer import unique_id
from twistmq.client.core.producer.unique_id import UniqueIds, process_ids

LOCALHOST = b"\x7f\x00\x00\x01"
#: Of one millisecond.
NOW_MS = 1_790_000_000_000


def local_ms(year: int, month: int, day: int = 1) -> int:
    """Return the begin of a day in the local time zone, Unix ms."""
    return int(datetime(year, month, day).timestamp() * 1000)


def make_in_child(connection: Connection, ids: UniqueIds, amount: int) -> None:
    """Make ids in another process."""
    connection.send([ids.make(NOW_MS) for _ in range(amount)])
    connection.close()


class FormatTests(SynchronousTestCase):
    """The digits of an id."""

    def test_an_id_has_address_process_random_time_and_number(self) -> None:
        """Its parts are at the places where Apache's tools expect them."""
        text = UniqueIds(LOCALHOST).make(local_ms(2026, 11) + 0x59C3E2)
        self.assertEqual(len(text), 32)
        self.assertEqual(text[:12], f"7F000001{os.getpid() & 0xFFFF:04X}")
        self.assertEqual(text[20:], "0059C3E20001")

    def test_an_address_of_16_bytes_makes_56_digits(self) -> None:
        """Other lengths are refused."""
        self.assertEqual(len(UniqueIds(bytes(16)).make(NOW_MS)), 56)
        self.assertRaises(ValueError, UniqueIds, b"\x7f")

    def test_the_time_is_that_of_the_month(self) -> None:
        """It begins with the month, also in December, and wraps as Java's int32 does."""
        ids = UniqueIds(LOCALHOST)
        last = local_ms(2026, 12) - 1
        self.assertEqual(ids.make(last)[20:28], f"{last - local_ms(2026, 11):08X}")
        self.assertEqual(ids.make(local_ms(2026, 12))[20:28], "00000000")
        self.assertEqual(ids.make(local_ms(2026, 12, 31))[20:28], f"{30 * 86_400_000:08X}")
        self.assertEqual(ids.make(local_ms(2027, 1) + 5)[20:28], "00000005")

    def test_months_begin_in_the_local_time_zone(self) -> None:
        """mqadmin interprets the time of an id in its own zone, as for Java's ids."""
        zone = os.environ.get("TZ")

        def restore() -> None:
            if zone is None:
                os.environ.pop("TZ", None)
            else:
                os.environ["TZ"] = zone
            time.tzset()

        self.addCleanup(restore)
        os.environ["TZ"] = "America/New_York"
        time.tzset()
        # Four hours after midnight of UTC.
        begin = 1_790_827_200_000
        self.assertEqual(UniqueIds(LOCALHOST).make(begin)[20:28], "00000000")


class UniqueTests(SynchronousTestCase):
    """No id is made twice."""

    def test_many_ids_of_one_millisecond_differ(self) -> None:
        """When the counter is used up, the next millisecond begins."""
        ids = UniqueIds(LOCALHOST)
        made = [ids.make(NOW_MS) for _ in range(200_000)]
        self.assertEqual(len(set(made)), len(made))

    def test_a_clock_that_is_set_back_repeats_nothing(self) -> None:
        """This is so within a month and over its begin."""
        ids = UniqueIds(LOCALHOST)
        begin = local_ms(2026, 11)
        made = [ids.make(begin + ms) for _ in range(50) for ms in range(-50, 50)
                for _ in range(30)]
        self.assertEqual(len(set(made)), len(made))

    def test_a_large_step_back_is_followed_with_another_random_number(self) -> None:
        """A clock that was a day ahead does not leave its mark on all ids of that day."""
        ids = UniqueIds(LOCALHOST)
        before = [ids.make(NOW_MS + ms) for ms in (0, 86_400_000)]
        after = [ids.make(NOW_MS) for _ in range(2)]
        self.assertEqual(after[0][20:28], before[0][20:28])
        self.assertNotEqual(after[0][12:20], before[0][12:20])
        self.assertEqual(len({*before, *after}), 4)

    def test_the_same_time_of_the_next_month_has_other_ids(self) -> None:
        """The random number is a new one."""
        ids = UniqueIds(LOCALHOST)
        made = [ids.make(local_ms(2026, month) + 5) for month in (9, 10, 11)]
        self.assertEqual(len({text[12:20] for text in made}), 3)

    def test_threads_share_a_maker(self) -> None:
        """Four threads make 10^5 different ids each, while time passes."""
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-6)
        ids = UniqueIds(LOCALHOST)
        made: list[list[str]] = [[] for _ in range(4)]

        def work(found: list[str]) -> None:
            found += [ids.make(NOW_MS + number // 50) for number in range(100_000)]

        threads = [threading.Thread(target=work, args=(found,)) for found in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set().union(*made)), 400_000)

    def test_a_thread_that_is_stopped_between_two_steps_repeats_nothing(self) -> None:
        """It has taken a number, and others have used up the counter when it continues."""
        ids = UniqueIds(LOCALHOST)
        made: list[str] = []
        numbers = count()

        class Numbers:
            """Lets others make ids while the first number is taken."""

            def __next__(self) -> int:
                number = next(numbers)
                if number == 0:
                    made.extend(ids.make(NOW_MS) for _ in range(0x10000))
                return number

        ids._numbers = Numbers()  # type: ignore[assignment]
        made.append(ids.make(NOW_MS))
        self.assertEqual(len(set(made)), 0x10001)

    def test_children_of_a_fork_make_ids_of_their_own(self) -> None:
        """Four processes make 10^5 ids each with a maker that was used before; all differ."""
        if not hasattr(os, "fork"):
            raise SkipTest("no fork on this system")
        ids = UniqueIds(LOCALHOST)
        made = {ids.make(NOW_MS)}
        context = get_context("fork")
        children = []
        for _ in range(3):
            receiver, sender = context.Pipe(duplex=False)
            child = context.Process(target=make_in_child, args=(sender, ids, 100_000))
            child.start()
            sender.close()
            children.append((child, receiver))
        made.update(ids.make(NOW_MS) for _ in range(99_999))
        for child, receiver in children:
            with closing(receiver):
                made.update(receiver.recv())
            child.join()
        self.assertEqual(len(made), 400_000)

    def test_a_lock_that_was_held_at_the_fork_does_not_stop_the_child(self) -> None:
        """The child has its own locks."""
        if not hasattr(os, "fork"):
            raise SkipTest("no fork on this system")
        ids = UniqueIds(LOCALHOST)
        context = get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        with ids._lock:
            child = context.Process(target=make_in_child, args=(sender, ids, 1))
            child.start()
        self.addCleanup(child.join)
        self.addCleanup(child.kill)
        sender.close()
        with closing(receiver):
            self.assertTrue(receiver.poll(30))

    def test_clients_of_a_process_share_the_maker_of_their_address(self) -> None:
        """Two clients with one address make different ids."""
        self.addCleanup(unique_id._shared.clear)
        self.assertIs(process_ids(LOCALHOST), process_ids(bytes(LOCALHOST)))
        self.assertIsNot(process_ids(LOCALHOST), process_ids(bytes(4)))
