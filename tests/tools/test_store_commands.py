"""``twistmq store``: options, output and statuses; nothing changes on disk."""

from __future__ import annotations

import base64
import contextlib
import errno
import io
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge import boot
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.inspect.check import StoreCheck
from twistmq.broker.store.inspect.files import Reader
from twistmq.broker.testing.store import StoreBox, message
from twistmq.tools.command_line import main

_MAIN = "from twistmq.tools.command_line import main; raise SystemExit(main())"
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "store" / "5.3.3"


def call(*arguments: str) -> tuple[int, str, str]:
    """Run a command line in this process: status, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["store", *arguments])
    return status, out.getvalue(), err.getvalue()


def call_unread(*arguments: str) -> tuple[int, bytes]:
    """Run a command line whose output has no reader; :returns: status and standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = subprocess.run(
            [sys.executable, "-c", _MAIN, "store", *arguments], stdout=writing,
            stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)
    return process.returncode, process.stderr


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


class CheckTests(SynchronousTestCase):
    """The command ``twistmq store check``."""

    def copy(self) -> Path:
        """A copy of the store Apache's broker wrote, to be damaged."""
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        shutil.copytree(GOLDEN, root)
        return root

    def test_a_table_and_status_0(self) -> None:
        """A table and status 0."""
        status, out, err = call("check", str(GOLDEN))
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.splitlines(), [
            "  2  commit-log files", " 42  records", "  5  queues", "  5  queue files",
            " 42  queue entries", "  1  index files", "112  index items", "  0  problems"])

    def test_each_disagreement_is_one_line_and_status_is_1(self) -> None:
        """A line for each disagreement, at most so many, and status 1."""
        root = self.copy()
        entries = root / "consumequeue/Golden/0" / f"{0:020d}"
        entries.write_bytes(bytes(60) + entries.read_bytes()[60:])
        status, out, _ = call("check", str(root), "--limit", "2")
        self.assertEqual(status, 1)
        lines = out.splitlines()
        self.assertEqual(lines[0], f"consumequeue/Golden/0/{0:020d} byte 0: expected the entry of "
                                   "the record at 0, found zeros")
        self.assertEqual((lines[2], lines[-1]), ("and 1 more", "  3  problems"))

    def test_commit_log_elsewhere(self) -> None:
        """--commitlog gives the folder of the log, and --index-slots the slots of the index."""
        root = self.copy()
        (root / "commitlog").rename(root / "log")
        self.assertEqual(call("check", str(root), "--commitlog", str(root / "log"),
                              "--index-slots", "40")[0], 0)

    def test_a_missing_store_ends_with_253_or_255(self) -> None:
        """The status is 255 if the store cannot be read."""
        status, out, err = call("check", "/nowhere")
        self.assertEqual((status, out), (boot.EXIT_REFUSED, ""))
        self.assertIn("/nowhere is not a store", err)
        def fail(*_: object) -> bytes:
            raise OSError(errno.EIO, "the disk fails")

        self.patch(Reader, "read", fail)
        status, out, err = call("check", str(GOLDEN))
        self.assertEqual((status, out), (boot.EXIT_FAILED, ""))
        self.assertIn("the disk fails", err)

    def test_bad_command_lines(self) -> None:
        """The status is 2 in every case, because 1 means that there are findings."""
        for arguments in (("check",), ("check", str(GOLDEN), "--no-such"), ("--no-such",),
                          ("nothing",), ("dump", str(GOLDEN), "--limit", "-1")):
            status, out, err = call(*arguments)
            self.assertEqual((status, out), (2, ""), msg=str(arguments))
            self.assertIn("Usage: twistmq store", err)

    def test_ctrl_c_is_no_disagreement_either(self) -> None:
        """The status is not 1."""
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        self.patch(StoreCheck, "run", interrupt)
        self.assertEqual(call("check", str(GOLDEN))[0], 130)

    def test_a_progress_bar_is_shown_on_a_terminal(self) -> None:
        """A progress bar is printed only to a terminal."""
        error = Terminal()
        with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(main(["store", "check", str(GOLDEN)]), 0)
        # Older versions of click do not draw what is over within a tenth of a second to its end.
        self.assertRegex(error.getvalue(), r"\[[-#]+\] +\d+%")

    def test_the_help_names_checks_and_statuses(self) -> None:
        """It names the checks and the statuses."""
        self.assertIn("exit status", call("--help")[1])
        self.assertIn("queue entry and index item", call("check", "--help")[1].replace("\n", " "))


class DumpTests(SynchronousTestCase):
    """The command ``twistmq store dump``."""

    def dump(self, *options: str, root: Path = GOLDEN) -> list[dict[str, Any]]:
        """Dump as JSON lines, with nothing on standard error."""
        status, out, err = call("dump", str(root), "--json", *options)
        self.assertEqual((status, err), (0, ""))
        return [json.loads(line) for line in out.splitlines()]

    def test_every_record_is_dumped_in_log_order(self) -> None:
        """Every record, in the order of the log."""
        found = self.dump()
        self.assertEqual(len(found), 42)
        offsets = [each["offset"] for each in found]
        self.assertEqual(offsets, sorted(offsets))
        self.assertEqual(found[0], {
            "offset": 0, "size": found[1]["offset"], "topic": "Golden", "queue": 0,
            "queueOffset": 0, "storeTime": found[0]["storeTime"],
            "bornTime": found[0]["bornTime"], "storeHost": "127.0.0.1:23911",
            "bornHost": found[0]["bornHost"], "keys": [found[0]["keys"][0], "key0", "all"],
            "tags": "Tag0", "properties": found[0]["properties"], "sysFlag": 0, "flag": 0,
            "reconsumeTimes": 0, "preparedTransactionOffset": 0, "bodyLength": 6,
            "body": "body 0"})
        self.assertEqual(found[0]["properties"]["größe"], "消息0")

    def test_topic_queue_limit(self) -> None:
        """Records are selected by topic and queue, up to a limit."""
        found = self.dump("--topic", "Golden", "--queue", "1", "--limit", "3", "--no-body")
        self.assertEqual([each["queueOffset"] for each in found], [0, 1, 2])
        self.assertNotIn("body", found[0])
        self.assertEqual(self.dump("--topic", "None"), [])
        self.assertEqual(self.dump("--limit", "0"), [])

    def test_records_are_selected_by_store_time(self) -> None:
        """The times are in ms or in ISO 8601; both ends are included."""
        times = [each["storeTime"] for each in self.dump()]
        begin, end = times[5], times[30]
        expected = [each for each in times if begin <= each <= end]
        found = self.dump("--from", str(begin), "--to", str(end))
        self.assertEqual([each["storeTime"] for each in found], expected)
        text = datetime.fromtimestamp(begin / 1000, UTC).isoformat()
        self.assertEqual(self.dump("--from", text, "--to", str(end)), found)
        self.assertEqual(self.dump("--from", "2030-01-01"), [])
        self.assertEqual(self.dump("--to", "2020-01-01T00:00:00Z"), [])
        status, _, err = call("dump", str(GOLDEN), "--from", "soon")
        self.assertEqual(status, 2)
        self.assertIn("neither ISO 8601 nor", err)

    def test_a_key_is_found_with_and_without_an_index(self) -> None:
        """A key is searched in other topics as well."""
        by_index = self.dump("--topic", "Golden", "--key", "key3")
        self.assertEqual([each["body"] for each in by_index], ["body 3"])
        self.assertEqual(self.dump("--key", "key3"), by_index)
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        shutil.copytree(GOLDEN, root)
        shutil.rmtree(root / "index")
        self.assertEqual(self.dump("--topic", "Golden", "--key", "key3", root=root), by_index)
        unique = by_index[0]["keys"][0]
        self.assertEqual(self.dump("--topic", "Golden", "--key", unique), by_index)
        self.assertEqual(len(self.dump("--topic", "Golden", "--key", "all")), 30)

    def test_key_of_a_running_broker(self) -> None:
        """Records that are not in the index yet are read from the log."""
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        root.mkdir()
        box = StoreBox(RealDisk(), root=str(root)).open()
        box.append(message("Topic", b"\xff\0", keys="k"))
        self.successResultOf(box.store.stop())
        box = box._again().open()
        box.append(message("Topic", b"second\n", keys="k"))
        found = self.dump("--topic", "Topic", "--key", "k", root=root)
        self.assertEqual(found[1]["body"], "second\n")
        self.assertEqual(base64.b64decode(found[0]["bodyBase64"]), b"\xff\0")
        _, out, _ = call("dump", str(root))
        self.assertEqual(out.splitlines()[2], "    body (2): base64 /wA=")
        self.assertEqual(out.splitlines()[5], r"    body (7): second\n")
        self.successResultOf(box.store.stop())

    def test_the_record_at_an_offset_is_dumped(self) -> None:
        """The status is 1 if no record begins there."""
        second = self.dump("--limit", "2")[1]
        self.assertEqual(self.dump("--offset", str(second["offset"])), [second])
        status, out, err = call("dump", str(GOLDEN), "--offset", "5")
        self.assertEqual((status, out), (1, ""))
        self.assertIn(f"commitlog/{0:020d} byte 5: expected a record", err)

    def test_lines_for_people(self) -> None:
        """Lines for people: places and times, properties, the body."""
        _, out, _ = call("dump", str(GOLDEN), "--limit", "1", "--no-body")
        first, second = out.splitlines()
        self.assertIn("0  Golden-0@0  stored 2026-11-21T", first)
        self.assertIn("TAGS=Tag0 KEYS=key0 all", second)

    def test_damage_goes_to_standard_error_and_the_rest_is_printed(self) -> None:
        """Unreadable records are named on standard error."""
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        shutil.copytree(GOLDEN, root)
        log = root / "commitlog" / f"{0:020d}"
        log.write_bytes(bytes(8) + log.read_bytes()[8:])
        status, out, err = call("dump", str(root), "--json")
        self.assertEqual((status, len(out.splitlines())), (1, 41))
        self.assertIn("byte 0: expected a record", err)
        self.assertEqual(call("dump", "/nowhere")[0], boot.EXIT_REFUSED)

    def test_nobody_reads(self) -> None:
        """With ``| head`` it ends at once without a message, and so does check."""
        for arguments in (("dump", str(GOLDEN)), ("dump", str(GOLDEN), "--json"),
                          ("check", str(GOLDEN))):
            self.assertEqual(call_unread(*arguments), (141, b""), msg=str(arguments))
