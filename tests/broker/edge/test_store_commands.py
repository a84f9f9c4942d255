"""``twistmq store``: options, what is printed, statuses, and that nothing changes on disk."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge import boot
from twistmq.broker.edge.command_line import main

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "store" / "5.3.3"


def call(*arguments: str) -> tuple[int, str, str]:
    """Run a command line in this process: status, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["store", *arguments])
    return status, out.getvalue(), err.getvalue()


class Terminal(io.StringIO):
    """A standard error somebody looks at."""

    def isatty(self) -> bool:
        """It is one."""
        return True


class CheckTests(SynchronousTestCase):
    """``twistmq store check``."""

    def copy(self) -> Path:
        """A copy of the store Apache's broker wrote, to be damaged."""
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        shutil.copytree(GOLDEN, root)
        return root

    def test_whole(self) -> None:
        """A table and status 0."""
        status, out, err = call("check", str(GOLDEN))
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.splitlines(), [
            "  2  commit-log files", " 42  records", "  5  queues", "  5  queue files",
            " 42  queue entries", "  1  index files", "112  index items", "  0  problems"])

    def test_damaged(self) -> None:
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
        """--commitlog is where the log is; --index-slots is what the index has."""
        root = self.copy()
        (root / "commitlog").rename(root / "log")
        self.assertEqual(call("check", str(root), "--commitlog", str(root / "log"),
                              "--index-slots", "40")[0], 0)

    def test_no_store(self) -> None:
        """Status 253, and 255 when it cannot be read; a wrong command line is 1."""
        status, out, err = call("check", "/nowhere")
        self.assertEqual((status, out), (boot.EXIT_REFUSED, ""))
        self.assertIn("/nowhere is no store", err)
        root = self.copy()
        shutil.rmtree(root / "index")
        (root / "index").mkdir()
        (root / "index" / "20261121080613971").symlink_to(root / "nothing")
        status, out, err = call("check", str(root))
        self.assertEqual((status, out), (boot.EXIT_FAILED, ""))
        self.assertIn("FileNotFoundError", err)
        self.assertEqual(call("check")[0], boot.EXIT_USAGE)

    def test_progress(self) -> None:
        """A bar where somebody sees it."""
        error = Terminal()
        with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(main(["store", "check", str(GOLDEN)]), 0)
        self.assertIn("100%", error.getvalue())

    def test_help(self) -> None:
        """Says what is checked and the statuses."""
        self.assertIn("exit status", call("--help")[1])
        self.assertIn("queue entry and index item", call("check", "--help")[1].replace("\n", " "))
