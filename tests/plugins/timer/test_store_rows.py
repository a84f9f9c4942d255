"""``twistmq store dump --view timers``: the waiting messages and their selection."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from tests.plugins.timer.store_case import TimerStoreCase
from twistmq.broker.store.inspect.dump import Wanted
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.report import Report
from twistmq.plugins.timer.store_rows import timer_rows, timer_text
from twistmq.tools.command_line import main


class RowsTests(TimerStoreCase):
    """The function timer_rows."""

    def rows(self, wanted: Wanted | None = None, problems: int = 0) -> list[dict[str, Any]]:
        """Return the rows, after a check of the number of lines about unreadable data."""
        lines: list[str] = []
        report = Report(self.root, lines.append, 9)
        files = StoreFiles(self.root)
        try:
            found = list(timer_rows(files, wanted or Wanted(), report))
        finally:
            files.close()
        self.assertEqual(len(lines), problems, msg=lines)
        return found

    def test_waiting_rolled_taken_back(self) -> None:
        """Waiting, rolled and recalled messages are listed by their times;
        delivered ones are not.
        """
        self.fill()
        self.stop()
        rows = self.rows()
        self.assertEqual([(row["topic"], row["state"]) for row in rows], [
            *[("T", "waiting")] * 12, ("T", "taken back"), *[("L", "waiting")] * 4,
            ("T", "rolled")])
        self.assertEqual([row["slotTime"] for row in rows], sorted(row["slotTime"] for row in rows))
        self.assertEqual({row["due"] - row["slotTime"] for row in rows[:-1]}, {0})
        far = rows[-1]
        self.assertLess(far["slotTime"], far["due"])
        self.assertEqual(far["due"], far["storeTime"] - far["storeTime"] % 1000 + 99_000)
        waiting = self.waiting_units()
        self.assertEqual({row["timerLogOffset"]: row["offset"] for row in rows}, waiting)
        self.assertEqual(rows[0]["queue"], 1)
        self.assertEqual((rows[0]["keys"], rows[0]["tags"]), ("k", "red"))

    def waiting_units(self) -> dict[int, int]:
        """Return the positions of the units of waiting messages, in both logs."""
        return {position: unit.log_offset for position, unit in self.units()
                if unit.change > 0 and position > 0}

    def test_not_entered(self) -> None:
        """Messages that are not entered yet, and recalls of these."""
        self.fill()
        self.timed(b"new", 15_000)
        self.recall(self.timed(b"new back", 25_000))
        for ended in (False, True):
            if ended:
                self.kill()
            rows = [row for row in self.rows() if row["timerLogOffset"] is None]
            self.assertEqual([row["state"] for row in rows], ["not entered", "taken back"])
            self.assertEqual([row["slotTime"] for row in rows], [None, None])
        self.assertEqual([row["timerQueueOffset"] for row in rows], [20, 21])

    def test_rows_are_selected_by_topic_queue_key_and_time(self) -> None:
        """Rows are selected by topic, queue, offset, key and time."""
        self.fill()
        self.stop()
        rows = self.rows()
        last = rows[-1]
        for wanted, expected in (
            (Wanted(topic="L"), rows[13:17]), (Wanted(queue_id=2), []), (Wanted(key="k"), rows),
            (Wanted(place=last["offset"]), [last]), (Wanted(begin_ms=last["due"]), [last]),
            (Wanted(end_ms=last["due"] - 1), rows[:-1]),
            (Wanted(key="k", topic="T", begin_ms=last["due"]), [last]),
        ):
            self.assertEqual(self.rows(wanted), expected, msg=str(wanted))

    def test_damaged_units_are_named_and_the_rest_is_listed(self) -> None:
        """An invalid unit, and one that refers to no message, are named; the others are listed."""
        self.fill()
        self.stop()
        position = self.units()[5][0]
        self.put_unit(position, "log_offset", "q", 3)
        self.assertEqual(len(self.rows(problems=1)), 17)
        self.put_unit(position, "size", "i", 3)
        self.assertEqual(len(self.rows(problems=1)), 17)

    def test_no_timers(self) -> None:
        """The store has no timers."""
        self.stop()
        self.assertEqual(self.rows(), [])

    def test_unprintable_text_is_escaped(self) -> None:
        """Each row is a line, in which unprintable characters are escaped."""
        self.fill()
        self.stop()
        rows = self.rows()
        self.assertRegex(timer_text(rows[0]), (
            r"^due 2023-11-14T22:13:\d\d\.000Z  T-1  waiting  stored 2023-11-14T22:13:\d\d\.\d{3}Z"
            r"  at \d+  .*KEYS=k  TAGS=red$"))
        self.assertRegex(timer_text(rows[-1]), "  rolled  .*  until 2023-11-14T22:1")
        self.assertIn("KEYS=a\\nb", timer_text({**rows[0], "keys": "a\nb"}))
        self.assertTrue(timer_text({**rows[0], "due": None}).startswith("never due  "))


class CommandTests(TimerStoreCase):
    """The command line, with the plugins that are installed."""

    def call(self, *arguments: str) -> tuple[int, list[str], str]:
        """Status, lines of standard output, standard error."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(["store", *arguments])
        return status, out.getvalue().splitlines(), err.getvalue()

    def test_lines_json_the_options_of_other_dumps(self) -> None:
        """The rows are printed as lines or JSON, with the options of other dumps."""
        self.fill()
        status, lines, err = self.call("dump", str(self.root), "--view", "timers")
        self.assertEqual((status, len(lines), err), (0, 18, ""))
        status, lines, _ = self.call("dump", str(self.root), "--view", "timers", "--json",
                                     "--topic", "L", "--limit", "2")
        self.assertEqual([json.loads(line)["topic"] for line in lines], ["L", "L"])

    def test_unknown_view(self) -> None:
        """The error names the views that exist."""
        status, lines, err = self.call("dump", str(self.root), "--view", "nothing")
        self.assertEqual((status, lines), (2, []))
        self.assertIn("'nothing' is not one of timers", err)

    def test_the_files_are_counted(self) -> None:
        """The files are counted; a fault is a line and changes the exit status."""
        self.fill()
        self.stop()
        status, lines, err = self.call("check", str(self.root))
        self.assertEqual((status, err), (0, ""))
        self.assertIn("20  timer log units", [line.strip() for line in lines])
        place = self.put_unit(52, "topic_hash", "i", 0)
        status, lines, _ = self.call("check", str(self.root))
        self.assertEqual((status, lines[0]), (
            1, f"{place}: expected the code 84 of topic 'T', found 0"))
