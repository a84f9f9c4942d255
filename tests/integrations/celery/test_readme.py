"""The page of the transport: its examples run as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from tests.integrations.celery.case import KombuCase
from tests.integrations.page_examples import option_rows, write_examples
from tests.interop.servers import wait_until
from twistmq.integrations.celery.options import Options

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = (ROOT / "integrations/celery/README.md").read_text()


class ExampleTests(KombuCase):
    """The examples, in files with their names."""

    #: The programs of Celery start slowly on a busy machine.
    timeout = 300

    def test_a_worker_runs_the_tasks_of_the_page(self) -> None:
        """One task has a countdown; the worker also answers a ping, and stops after a signal."""
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        write_examples(PAGE, folder, self.broker.namesrv_address)
        celery = [sys.executable, "-m", "celery", "-A", "shop"]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        log = folder / "worker.log"
        with log.open("w") as output:
            worker = subprocess.Popen([*celery, "worker", "-c", "2", "-l", "INFO"], cwd=folder,
                                      env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until("the worker", lambda: " ready." in log.read_text())
            subprocess.run([sys.executable, "send.py"], cwd=folder, env=environment, check=True,
                           timeout=60)
            wait_until("the tasks", lambda: "order 18 is billed" in log.read_text())
            text = log.read_text()
            self.assertLess(text.index("order 17 is billed"), text.index("order 18 is billed"))
            ping = subprocess.run([*celery, "inspect", "ping", "-t", "20", "-d", self.worker(text)],
                                  cwd=folder, env=environment, capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual((ping.returncode, ping.stderr), (0, ""))
            self.assertIn("pong", ping.stdout)
            worker.terminate()
            self.assertEqual(worker.wait(60), 0)
        finally:
            worker.kill()
            worker.wait()
        self.assertNotIn("Traceback", log.read_text())

    def worker(self, text: str) -> str:
        """Return the name of the worker, from its log."""
        found = re.search(r"(celery@\S+) ready\.", text)
        assert found is not None
        return found[1]

    def test_the_options_are_those_of_the_code(self) -> None:
        """Each option is on the page with its default."""
        rows = option_rows(PAGE)
        fields = msgspec.structs.fields(Options)
        self.assertEqual(set(rows), {field.name for field in fields})
        for field in fields:
            if field.name not in ("name_servers", "prefix"):
                self.assertEqual(float(rows[field.name].replace(",", "")), float(field.default))
