"""The page of the broker: its examples run as they are printed."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.integrations.page_examples import option_rows, run_test_of_page, write_examples
from tests.integrations.taskiq.case import TaskiqCase
from tests.interop.servers import wait_until
from twistmq.integrations.taskiq import TwistmqBroker

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = (ROOT / "integrations/taskiq/README.md").read_text()


class ExampleTests(TaskiqCase):
    """The examples, in files with their names."""

    #: The programs of Taskiq start slowly on a busy machine.
    timeout = 300

    def write_examples(self) -> Path:
        """Write the examples; :returns: their folder."""
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        write_examples(PAGE, folder, self.server.namesrv_address)
        return folder

    def test_a_worker_runs_the_tasks_of_the_page(self) -> None:
        """One task runs at once, and one after its delay; the worker stops after a signal."""
        folder = self.write_examples()
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1"}
        log = folder / "worker.log"
        with log.open("w") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "taskiq", "worker", "--workers", "1", "shop:broker"],
                cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            subprocess.run([sys.executable, "send.py"], cwd=folder, env=environment, check=True,
                           timeout=60)
            wait_until("the tasks", lambda: "order 18 is billed" in log.read_text())
            text = log.read_text()
            self.assertLess(text.index("order 17 is billed"), text.index("order 18 is billed"))
            worker.terminate()
            worker.wait(60)
        finally:
            worker.kill()
            worker.wait()
        self.assertNotIn("Traceback", log.read_text())

    def test_the_test_of_the_page_passes(self) -> None:
        """The test of the page uses the fixture that is installed."""
        run = run_test_of_page(self.write_examples())
        self.assertIn("1 passed", run.stdout, run.stdout + run.stderr)

    def test_the_options_are_those_of_the_code(self) -> None:
        """The page gives each option with its default."""
        rows = option_rows(PAGE)
        parameters = inspect.signature(TwistmqBroker).parameters
        named = {name: each.default for name, each in parameters.items()
                 if each.kind is inspect.Parameter.KEYWORD_ONLY}
        self.assertEqual(set(rows), set(named))
        for name, default in named.items():
            if isinstance(default, bool):
                self.assertEqual(rows[name], str(default))
            elif isinstance(default, int | float):
                self.assertEqual(float(rows[name].replace(",", "")), default)
