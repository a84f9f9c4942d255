"""A store on the disk with timed messages in every state, for tools that read it from outside."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tests.plugins.timer.case import TimerTestCase
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.inspect.check import StoreCheck
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.report import Report
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import timer
from twistmq.plugins.timer.log_unit import FIELD_POSITIONS, UNIT_SIZE, LogUnit, decode_unit
from twistmq.plugins.timer.wheel import SLOT_SIZE, Slot, decode_slots
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.send import RecallMessageRequestHeader

#: Six units a file, and the blank.
LOG_FILE_SIZE = 340
UNITS_PER_FILE = 6


def check(root: Path) -> tuple[list[str], Report]:
    """Check a store with the plugin's files; :returns: the lines about faults, and the report."""
    lines: list[str] = []
    report = Report(root, lines.append, 1000)
    files = StoreFiles(root)
    try:
        StoreCheck(files, report, None, timer.Plugin.register_store_files()).run()
    finally:
        files.close()
    return lines, report


class TimerStoreCase(TimerTestCase):
    """A test with a store below ``root``."""

    settings = {  # noqa: RUF012
        "recallMessageEnable": "true", "timerRollWindowSlot": "60",
        "mappedFileSizeTimerLog": str(LOG_FILE_SIZE)}

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.real_disk = RealDisk()
        self.box = self.start()
        self.is_up = True
        self.addCleanup(self.stop)

    def start(self, **settings: str) -> KernelBox:
        """A kernel on the disk, as late as the last one was."""
        now_ms = self.box.now_ms if hasattr(self, "box") else None
        box = KernelBox([("timer", timer.Plugin)], {
            **self.settings, "storePathRootDir": str(self.root), **settings}, self.real_disk)
        if now_ms is not None:
            box.now_ms = now_ms
        return box

    def stop(self) -> None:
        """Stop cleanly, once."""
        if self.is_up:
            self.is_up = False
            self.box.stop()

    def kill(self) -> None:
        """End as a killed process does."""
        self.is_up = False
        self.box.kernel.store.close()

    # --- messages

    def timed(self, body: bytes, delay_ms: int, topic: str = "T") -> str:
        """Send a message; :returns: its handle."""
        handle = self.send(body, topic, TIMER_DELAY_MS=str(delay_ms)).recall_handle
        assert handle is not None
        return handle

    def recall(self, handle: str, topic: str = "T") -> None:
        reply = self.box.ask(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(
            topic=topic, recall_handle=handle, producer_group="P"))
        self.assertEqual(reply.code, ResponseCode.SUCCESS)

    def fill(self) -> None:
        """Store messages in every state: delivered, waiting, rolled, recalled; 22 units, 15 of 20
        s.
        """
        self.timed(b"soon", 1500)
        self.turns(4000)
        for number in range(12):
            self.timed(b"%d" % number, 20_000 - self.box.now_ms % 1000)
        self.recall(self.timed(b"back", 20_000 - self.box.now_ms % 1000))
        for number in range(4):
            self.timed(b"later %d" % number, 30_000 + 1000 * number, topic="L")
        self.timed(b"far", 100_000)
        self.turns(2000)
        self.box.kernel.store.flush_step(self.box.now_ms)
        self.save()

    # --- the files

    def log_place(self, position: int) -> tuple[Path, int]:
        """Return the file and the byte of a position in the timer log."""
        at = position % LOG_FILE_SIZE
        return self.root / "timerlog" / f"{position - at:020d}", at

    def units(self) -> list[tuple[int, LogUnit]]:
        """Return every unit with its position."""
        found = []
        for path in sorted((self.root / "timerlog").iterdir()):
            data = path.read_bytes()
            for at in range(0, UNITS_PER_FILE * UNIT_SIZE, UNIT_SIZE):
                unit = decode_unit(data[at:at + UNIT_SIZE])
                if unit is not None:
                    found.append((int(path.name) + at, unit))
        return found

    def slots(self) -> Iterator[tuple[int, int, Slot]]:
        """Every slot that is not zeros: where it is in the file, its time in ticks, it."""
        for number, ticks, slot in decode_slots((self.root / "timerwheel").read_bytes(), 0):
            yield number * SLOT_SIZE, ticks, slot

    def put(self, path: Path, position: int, data: bytes) -> None:
        """Overwrite bytes of a file."""
        with path.open("r+b") as file:
            file.seek(position)
            file.write(data)

    def put_unit(self, position: int, field: str, form: str, value: int) -> str:
        """Change a field of a unit; :returns: file and byte as a report names them."""
        path, at = self.log_place(position)
        at += FIELD_POSITIONS[field]
        self.put(path, at, struct.pack(f">{form}", value))
        return f"timerlog/{path.name} byte {at}"
