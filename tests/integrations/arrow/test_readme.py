"""The page about the reads: its examples run as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final
from unittest import SkipTest

from tests.integrations.arrow.case import ReadCase
from tests.interop.servers import wait_until
from twistmq.client import RequestRefused
from twistmq.integrations import arrow
from twistmq.protocol.topic_names import TRACE_TOPIC

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = (ROOT / "integrations/arrow/README.md").read_text()

for name in ("duckdb", "polars", "pandas"):
    if find_spec(name) is None:
        raise SkipTest(f"the extra test is not installed: {name} is missing")


class ExampleTests(ReadCase):
    """The examples, in files with their names."""

    settings: ClassVar = {"trace.server": "true"}

    def run_example(self, code: str) -> str:
        """Run an example in a process; :returns: its output."""
        store = self.box.broker.kernel.settings.text("storePathRootDir")
        code = code.replace("127.0.0.1:9876", self.name_servers).replace("data/store", store)
        code = code.replace("orders.duckdb", self.mktemp())
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              timeout=100, check=False)
        # On a busy machine the broker may answer late, and the read then logs that it waits.
        lines = [line for line in done.stderr.splitlines()
                 if not line.startswith(("waiting for up to ", "the wait is over "))]
        self.assertEqual((done.returncode, lines), (0, []))
        return done.stdout

    def has_traces(self) -> bool:
        """Return whether the broker has written traces."""
        try:
            queues = self.box.client.read_queues(TRACE_TOPIC, again=True)
        except RequestRefused:
            return False
        return any(self.box.client.max_offset(queue) for queue in queues)

    def test_examples(self) -> None:
        """The examples run in the order of the page, and the query prints the table of the page."""
        examples = dict(re.findall(r"<!-- example: (\S+) -->\n```python\n(.*?)```", PAGE,
                                   re.DOTALL))
        self.run_example(examples.pop("send.py"))
        table = PAGE.partition("This prints:\n\n```text\n")[2].partition("```")[0]
        # DuckDB prints its progress before the table when a query takes seconds.
        self.assertIn(table.strip(), self.run_example(examples.pop("query.py")))
        self.assertRegex(self.run_example(examples.pop("table.py")), r"^\(1000, \d+\)$")
        frames = self.run_example(examples.pop("frames.py"))
        self.assertRegex(frames, r"paid +┆ 750")
        self.assertIn("['order-0'] 250", frames)
        self.assertRegex(self.run_example(examples.pop("batches.py")), r"has \d\d\d bytes")
        wait_until("traces", self.has_traces)
        parts = self.run_example(examples.pop("parts.py"))
        self.assertRegex(parts, "^0 orders are older than a day\n"
                                "1000 orders are in the files of the broker\n"
                                r"\d+ events of traces\n$")
        self.assertEqual(examples, {})


class TableTests(ReadCase):
    """The table of errors."""

    def test_errors(self) -> None:
        """Every error in the table can be imported, and the table has no others."""
        section = PAGE.partition("## Errors")[2]
        named = {name for line in section.splitlines() if line.startswith("| `")
                 for name in re.findall(r"`(\w+)`", line.split("|")[1])}
        self.assertEqual(named, {name for name in arrow.__all__ if not name.startswith("read_")})
