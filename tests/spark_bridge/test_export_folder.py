"""The folder of an export: one job at a time, and the files that are removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge.session import spark_session
from twistmq.spark_bridge.export_folder import counted_files, locked, remove_leftovers
from twistmq.spark_bridge.export_plan import ExportError, ExportPlan


class LeftoverTests(SynchronousTestCase):
    """The files of an incomplete micro-batch."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.plan = ExportPlan({}, ("orders",), False, str(self.root))
        self.clock = 1_700_000_000

    def put(self, name: str, text: str = "") -> Path:
        """Make a file, a second younger than the one before."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.clock += 1
        os.utime(path, (self.clock, self.clock))
        return path

    def entry(self, path: Path) -> str:
        return json.dumps({"path": f"file://{path}", "size": 7, "action": "add"})

    def files(self) -> set[str]:
        return {path.name for path in (self.root / "messages").rglob("*.parquet*")}

    def batch(self, number: int, log: str = "{}") -> Path:
        """A micro-batch that is finished, with a file; :returns: the file."""
        self.put(f"_checkpoint/messages/offsets/{number}")
        path = self.put(f"messages/topic=orders/part-{number}.parquet")
        self.put(f"messages/_spark_metadata/{log.format(number)}", f"v1\n{self.entry(path)}\n")
        return path

    def test_its_files_go(self) -> None:
        """They are removed with their checksums; complete, older and foreign files remain."""
        self.put("messages/topic=orders/part-older.parquet")
        first = self.batch(0)
        self.put("_checkpoint/messages/offsets/1")
        self.put("messages/topic=orders/part-half.parquet")
        self.put("messages/topic=orders/.part-half.parquet.crc")
        self.put("messages/mine.parquet")
        self.assertEqual(remove_leftovers(self.plan, "messages"), 1)
        self.assertEqual(self.files(), {"part-older.parquet", "part-0.parquet", "mine.parquet"})
        self.assertEqual(counted_files(self.root / "messages"), {first: 7})

    def test_nothing_is_removed_after_a_finished_micro_batch(self) -> None:
        """Nothing is removed, whether or not its log is compacted."""
        for number, log in ((0, "{}"), (1, "{}.compact")):
            self.batch(number, log)
            self.put("messages/part-strange.parquet")
            self.assertEqual(remove_leftovers(self.plan, "messages"), 0)
        self.assertEqual(len(self.files()), 3)

    def test_other_folders(self) -> None:
        """A folder without a checkpoint, one elsewhere, and a table of another format are left
        alone.
        """
        self.put("messages/part-0.parquet")
        self.assertEqual(remove_leftovers(self.plan, "messages"), 0)
        self.put("_checkpoint/messages/offsets/0")
        self.put("messages/part-1.parquet")
        for plan in (ExportPlan({}, ("orders",), False, "s3a://bucket/x"),
                     ExportPlan({}, ("orders",), False, str(self.root), "delta")):
            self.assertEqual(remove_leftovers(plan, "messages"), 0)
        self.assertEqual(len(self.files()), 2)


class LockTests(SynchronousTestCase):
    """One job uses the folder at a time."""

    def setUp(self) -> None:
        self.session = spark_session()
        self.root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.plan = ExportPlan({}, ("orders",), False, str(self.root))

    def test_a_second_job_is_refused_until_the_first_ends(self) -> None:
        """The second job gets an error, and can run when the first one has ended."""
        with locked(self.plan, self.session):
            with self.assertRaises(ExportError) as caught, locked(self.plan, self.session, 0.1):
                self.fail("two have it")
            self.assertEqual(str(caught.exception), f"{self.root}: another export writes there")
            elsewhere = ExportPlan({}, ("orders",), False, "s3a://bucket/x")
            with locked(elsewhere, self.session, 0.1):
                pass
        with locked(self.plan, self.session, 0.1):
            pass

    def test_no_folder(self) -> None:
        """The error has the path of the folder."""
        self.root.write_text("a file")
        with self.assertRaises(ExportError) as caught, locked(self.plan, self.session):
            self.fail("it is locked")
        self.assertIn(f"{self.root}", str(caught.exception))
