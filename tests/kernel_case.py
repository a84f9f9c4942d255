"""A kernel with some plugins, a clock, and a disk that can fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from twisted.logger import LogLevel, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.kernel.kernel import Kernel
from twistmq.broker.observe.statistics import BrokerStats
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.record import MAGIC_POSITION, MessageRecord, decode_record

__all__ = [
    "DAMAGED_PARTS", "KernelTestCase", "count_any", "count_put", "error_lines", "flip",
    "note_appends", "run_all", "run_task"]

#: The parts of a record of which one byte is enough to make it unreadable.
DAMAGED_PARTS = ("body", "properties", "magic")


def note_appends(case: SynchronousTestCase, kernel: Kernel) -> list[MessageRecord]:
    """Record the records that the broker itself appends, stored or not.

    :returns: the records, as they come.
    """
    tried: list[MessageRecord] = []
    append = kernel.append

    def noted(
        records: Sequence[MessageRecord], owners: Sequence[int] | None = None
    ) -> dict[int, BrokerError]:
        tried.extend(records)
        return append(records, owners)

    case.patch(kernel, "append", noted)
    return tried


def count_any(stats: BrokerStats) -> None:
    """Have any name counted, of topics and groups that are not there too."""
    stats.is_known = lambda key: True


def count_put(stats: BrokerStats, topics: Mapping[str, tuple[int, int]]) -> None:
    """Count messages and bytes as stored, by topic, for any topics."""
    count_any(stats)
    records = [message(topic, message_count=count) for topic, (count, _) in topics.items()]
    for record, (_, size) in zip(records, topics.values(), strict=True):
        record.size = size
    stats.messages_put(records)


def error_lines(events: Iterable[Mapping[str, object]]) -> list[str]:
    """The lines that were logged as errors, or worse."""
    return [formatEvent(dict(event)) for event in events
            if event["log_level"] in (LogLevel.error, LogLevel.critical)]


def flip(
    box: KernelBox, topic: str, queue_id: int, offset: int, part: str, bits: int = 0xFF
) -> int:
    """Change one byte of a stored record, as a bad disk does.

    :param part: "body", "properties" for the length of the properties, "magic", or a number: the
        byte of the record.
    :param bits: that are turned over.
    :returns: the place of the record in the commit log.
    """
    [(place, size, _)] = box.kernel.store.queues.entries(topic, queue_id, offset, 1)
    log = box.kernel.store.commit_log
    record = log.read_record(place)
    assert record is not None and len(record) == size
    message = decode_record(record, 0, False)
    properties = len(message.properties.encode())
    at = {"body": record.index(message.body), "magic": MAGIC_POSITION,
          "properties": size - properties - 1}.get(part)
    at = int(part) if at is None else at
    path = f"{log.directory}/{place - place % log.file_size:020d}"
    file = box.disk.open_file(path)
    file.write_at(place % log.file_size + at, bytes([record[at] ^ bits]))
    file.close()
    return place


def run_task(box: KernelBox, name: str) -> None:
    """Run a periodic task now; :raises Exception: its error, at once or later."""
    _run(box, _task(box, name))


def run_all(box: KernelBox, name: str) -> None:
    """Run a periodic task now, and on as long as it has more to do at once."""
    task = _task(box, name)
    _run(box, task)
    while callable(task.period_ms) and task.period_ms() == 1:
        _run(box, task)


def _task(box: KernelBox, name: str) -> PeriodicTask:
    [task] = [task for task in box.kernel.periodic_tasks if task.name == name]
    return task


def _run(box: KernelBox, task: PeriodicTask) -> None:
    failures: list[Failure] = []
    # A disk that is cut off raises what is no Exception.
    waiting = task.run(box.now_ms + box.jump_ms)
    if waiting is not None:
        waiting.addErrback(failures.append)
    for failure in failures:
        failure.raiseException()


class KernelTestCase(SynchronousTestCase):
    """A test with a kernel that has only ``plugins``."""

    settings: Mapping[str, str] = {}
    plugins: Sequence[tuple[str, object]]
    disk: FaultyDisk

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.box = self.start()
        self.addCleanup(lambda: self.box.stop())

    def start(self, **settings: str) -> KernelBox:
        """A kernel on the disk, as late as the last one was."""
        now_ms = self.box.now_ms if hasattr(self, "box") else None
        box = KernelBox(self.plugins, {**self.settings, **settings}, self.disk)
        if now_ms is not None:
            box.now_ms = now_ms
        return box

    def restart(self, **settings: str) -> None:
        """Stop cleanly and start again."""
        self.box.stop()
        self.box = self.start(**settings)

    def after_kill(self, **settings: str) -> None:
        """Kill the process and start it again."""
        self.box.kernel.store.close()
        self.box = self.start(**settings)

    def run_task(self, name: str) -> None:
        run_task(self.box, name)

    def run_all(self, name: str) -> None:
        run_all(self.box, name)
