"""The periodic tasks of the kernel."""

from __future__ import annotations

import os
import time
from datetime import datetime

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import examples
from tests.kernel_case import count_put
from twistmq.broker.request.periodic_tasks import ms_to_next_midnight
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import pull_header
from twistmq.broker.testing.store import message
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.codes import RequestCode

DAY_MS = 86_400_000


class _ZoneCase(SynchronousTestCase):
    """Tests in several time zones."""

    def setUp(self) -> None:
        before = os.environ.get("TZ")

        def restore() -> None:
            if before is None:
                os.environ.pop("TZ", None)
            else:
                os.environ["TZ"] = before
            time.tzset()

        self.addCleanup(restore)

    def in_zone(self, zone: str) -> None:
        """Use a time zone until the test ends."""
        os.environ["TZ"] = zone
        time.tzset()


class MidnightTests(_ZoneCase):
    """The next local midnight."""

    @settings(max_examples=examples(200), deadline=None)
    @given(st.integers(1_600_000_000_000, 2_000_000_000_000),
           st.sampled_from(["UTC", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu"]))
    def test_it_is_one(self, now_ms: int, zone: str) -> None:
        """It is at most 25 hours ahead, and the clock shows 0:00 then."""
        self.in_zone(zone)
        ahead_ms = ms_to_next_midnight(now_ms)
        self.assertLess(0, ahead_ms)
        self.assertLessEqual(ahead_ms, DAY_MS + 3_600_000)
        then = datetime.fromtimestamp((now_ms + ahead_ms) / 1000)
        self.assertEqual((then.hour, then.minute, then.second), (0, 0, 0))
        self.assertEqual((now_ms + ahead_ms) % 1000, 0)

    def test_at_midnight(self) -> None:
        """The next one is a whole day away."""
        self.in_zone("UTC")
        self.assertEqual(ms_to_next_midnight(DAY_MS * 20_000), DAY_MS)
        self.assertEqual(ms_to_next_midnight(DAY_MS * 20_000 - 1), 1)


class TaskTests(_ZoneCase):
    """The tasks of the kernel."""

    def make(self, **settings: str) -> KernelBox:
        self.disk = FaultyDisk()
        box = KernelBox(disk=self.disk, settings=settings)
        self.addCleanup(box.stop)
        return box

    def task(self, box: KernelBox, name: str) -> PeriodicTask:
        task, = (task for task in box.kernel.periodic_tasks if task.name == name)
        return task

    def logged(self, box: KernelBox, name: str) -> list[LogEvent]:
        """Return the lines that a task logs in one run."""
        events: list[LogEvent] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.task(box, name).run(box.now_ms)
        return events

    def test_every_task_runs(self) -> None:
        """Each has a period, and runs on a broker without work."""
        box = self.make()
        for task in box.kernel.periodic_tasks:
            period = task.period_ms() if callable(task.period_ms) else task.period_ms
            self.assertGreater(period, 0, task.name)
            task.run(box.now_ms)

    def test_offsets_after_a_full_disk(self) -> None:
        """Tables that could not be saved are tried again each time, including the topics."""
        box = self.make()
        task = self.task(box, "save consumer offsets")
        self.disk.room_bytes = 0
        box.kernel.consumer_offset.commit("here", "G", "T", 0, 5)
        box.kernel.topic_config.create_in_send("New", "TBW102", "here", 4, 0)
        box.kernel.topics_changed()
        task.run(box.now_ms)
        self.task(box, "save topics and groups").run(box.now_ms)
        self.assertRaises(FileNotFoundError, self.disk.read_file,
                          "/store/config/consumerOffset.json")
        self.disk.room_bytes = None
        task.run(box.now_ms)
        self.assertIn(b'"T@G"', self.disk.read_file("/store/config/consumerOffset.json"))
        self.assertIn(b'"New"', self.disk.read_file("/store/config/topics.json"))
        self.assertEqual(box.kernel.tables.unsaved, [])

    def test_interval_follows_the_setting(self) -> None:
        """The setting is read each time."""
        box = self.make(flushConsumerOffsetInterval="1234")
        task = self.task(box, "save consumer offsets")
        assert callable(task.period_ms)
        self.assertEqual(task.period_ms(), 1234)

    def test_silence_follows_the_setting(self) -> None:
        """A client is forgotten after channelExpiredTimeout."""
        box = self.make(channelExpiredTimeout="5000")
        seen: list[tuple[int, int]] = []
        box.kernel.clients.expire = (  # type: ignore[method-assign]
            lambda now_ms, silence_max_ms: seen.append((now_ms, silence_max_ms)))
        self.task(box, "expire silent clients").run(box.now_ms)
        self.assertEqual(seen, [(box.now_ms, 5000)])

    def test_the_day_ends_at_the_local_midnight(self) -> None:
        """The day ends exactly then, even if the date of UTC differs."""
        for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
            self.in_zone(zone)
            box = self.make()
            self.assertEqual(self.logged(box, "record the day"), [], msg=zone)
            box.now_ms += ms_to_next_midnight(box.now_ms) - 1
            self.assertEqual(self.logged(box, "record the day"), [], msg=zone)
            box.now_ms += 1
            self.assertEqual(len(self.logged(box, "record the day")), 1, msg=zone)

    def test_midnight_moves_todays_counts_to_yesterday_and_logs_them(self) -> None:
        """Today's counts become yesterday's, and are logged."""
        box = self.make()
        count_put(box.kernel.stats, {"T": (5, 5)})
        box.kernel.stats.messages_got("G", "T", 3, 3)
        self.assertEqual(self.logged(box, "record the day"), [])
        box.now_ms += DAY_MS
        event, = self.logged(box, "record the day")
        self.assertEqual((event["put"], event["got"]), (5, 3))
        self.assertEqual(box.kernel.stats.put_today_morning, 5)
        self.assertEqual(self.logged(box, "record the day"), [])
        box.now_ms += DAY_MS
        event, = self.logged(box, "record the day")
        self.assertEqual((event["put"], event["got"]), (0, 0))

    def test_day_of_a_clock_that_is_set(self) -> None:
        """The clock is read often, and a clock that goes back does not begin a new day."""
        box = self.make()
        task = self.task(box, "record the day")
        assert callable(task.period_ms)
        for now_ms in (DAY_MS * 20_000, DAY_MS * 20_000 - 7, DAY_MS * 20_000 + DAY_MS // 3):
            box.now_ms = now_ms
            self.assertLessEqual(task.period_ms(), min(60_000, ms_to_next_midnight(now_ms)))
        self.logged(box, "record the day")
        box.now_ms -= 2 * DAY_MS
        self.assertEqual(self.logged(box, "record the day"), [])

    def test_old_files_of_the_log_go_as_the_settings_say(self) -> None:
        """Files are deleted by hour and age, or by the use of the disk, even while
        a group reads.

        Each case has the settings, the age of the files in hours, the hours from then to those of
        ``deleteWhen``, the part of the disk that is used, and whether files go.
        """
        for values, age, later, used, go in (
            ({"fileReservedTime": "5"}, 5, 0, 0.1, True),
            ({"fileReservedTime": "5"}, 4, 0, 0.1, False),
            ({"fileReservedTime": "5"}, 5, 12, 0.1, False),
            ({}, 71, 0, 0.1, False),
            ({}, 72, 0, 0.1, True),
            ({"fileReservedTime": "5", "diskMaxUsedSpaceRatio": "50"}, 5, 12, 0.51, True),
            ({"fileReservedTime": "5", "diskMaxUsedSpaceRatio": "50"}, 5, 12, 0.5, False),
            ({"fileReservedTime": "5", "diskMaxUsedSpaceRatio": "50"}, 4, 12, 0.51, False),
            ({"diskSpaceCleanForciblyRatio": "60"}, 0, 12, 0.61, True),
            ({"diskSpaceCleanForciblyRatio": "60", "cleanFileForciblyEnable": "false"}, 0, 12, 0.61,
             False),
        ):
            box = self.make(mappedFileSizeCommitLog="65536", **values)
            self.disk.used_ratio = used
            begin_ms = box.now_ms
            box.kernel.append([message("T", bytes(30_000)) for _ in range(7)])
            self.task(box, "flush the store").run(box.now_ms)
            box.now_ms += 60_000
            self.task(box, "flush the store").run(box.now_ms)
            box.kernel.consumer_offset.commit("host", "G", "T", 0, 0)
            box.now_ms = begin_ms + age * 3_600_000 + 60_000
            hour = datetime.fromtimestamp(box.now_ms / 1000 + later * 3600).hour
            box.settings.update({"deleteWhen": f"{hour:02d}"})
            for _ in range(3):
                self.task(box, "remove old commit-log files").run(box.now_ms)
            self.assertEqual(box.kernel.store.commit_log.min_offset > 0, go,
                             msg=f"{values} {age} {later} {used}")

    def test_dispatch_lag(self) -> None:
        """The log tells how far queues are behind the commit log."""
        box = self.make()
        box.kernel.append([message("T")])
        event, = self.logged(box, "log dispatch lag")
        self.assertEqual(event["size"], 0)
        self.patch(type(box.kernel.store.dispatch), "behind_bytes", 1234)
        event, = self.logged(box, "log dispatch lag")
        self.assertEqual(formatEvent(event), "dispatch is 1234 bytes behind the commit log")

    def test_water_marks(self) -> None:
        """Waiting connections and pulls are logged while there are any."""
        box = self.make()
        self.assertEqual(self.logged(box, "log water marks"), [])
        peer = box.peer()
        event, = self.logged(box, "log water marks")
        self.assertEqual(formatEvent(event), "0 pulls wait, 1 connections")
        box.kernel.topic_config.update(TopicConfig("T", 4, 4), {})
        for queue_id in range(3):
            self.assertIsNone(box.send(peer, RequestCode.PULL_MESSAGE, pull_header(
                "T", 0, queue_id=queue_id, hold_ms=15_000)))
        event, = self.logged(box, "log water marks")
        self.assertEqual(formatEvent(event), "3 pulls wait, 1 connections")

    def test_statistics_are_sampled_each_second(self) -> None:
        """They are sampled each second."""
        box = self.make()
        task = self.task(box, "sample statistics")
        self.assertEqual(task.period_ms, 1000)
        task.run(box.now_ms)
        count_put(box.kernel.stats, {"T": (20, 20)})
        self.assertEqual(box.kernel.stats.topic_put_tps("T", box.now_ms + 10_000), 2.0)
