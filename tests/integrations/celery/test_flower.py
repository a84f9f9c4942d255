"""Flower shows the workers and tasks of an application whose broker is twistmq."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.integrations.celery.case import KombuCase
from tests.integrations.page_examples import write_examples
from tests.interop.servers import free_port, wait_until

_PAGE = Path(__file__).resolve().parents[3] / "integrations/celery/README.md"


class FlowerTests(KombuCase):
    """The HTTP API of Flower, beside a worker with events."""

    #: Three programs start, slowly on a busy machine.
    timeout = 300
    if find_spec("flower") is None:
        skip = "flower is not installed"

    def setUp(self) -> None:
        """Start a worker and Flower with the application of the page."""
        super().setUp()
        self.folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        write_examples(_PAGE.read_text(), self.folder, self.broker.namesrv_address)
        # Flower's API is closed without this or a login.
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(
            filter(None, (str(self.folder), os.environ.get("PYTHONPATH")))),
            "FLOWER_UNAUTHENTICATED_API": "true"}
        self.port = free_port()
        self.run_celery("worker", "-c", "2", "-l", "INFO", "-E", "-n", "flowers@%h")
        self.run_celery("flower", "--address=127.0.0.1", f"--port={self.port}")
        wait_until("the worker", lambda: " ready." in self.log("worker"))

    def run_celery(self, command: str, *options: str) -> None:
        """Run a command of Celery until the test ends."""
        with (self.folder / f"{command}.log").open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "shop", command, *options],
                cwd=self.folder, env=self.environment, stdout=output, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)

    def log(self, command: str) -> str:
        return (self.folder / f"{command}.log").read_text()

    def ask(self, path: str, data: bytes | None = None) -> dict[str, Any]:
        """The answer of Flower; nothing while it does not answer yet."""
        try:
            with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.port}{path}", data, timeout=20) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{path}: {error.code} {error.read()!r}") from error
        except OSError:
            return {}
        return found

    def test_workers_and_tasks_are_shown(self) -> None:
        """The worker with its queue, each task with its state, and a task that Flower sends."""
        wait_until("Flower", lambda: self.ask("/api/workers?refresh=true"))
        subprocess.run([sys.executable, "send.py"], cwd=self.folder, env=self.environment,
                       check=True, timeout=60)

        def states() -> dict[str, str]:
            return {task["args"]: task["state"] for task in self.ask("/api/tasks").values()}

        wait_until("both tasks", lambda: states() == {"(17,)": "SUCCESS", "(18,)": "SUCCESS"})
        for task in self.ask("/api/tasks").values():
            self.assertEqual(task["name"], "shop.bill")
            self.assertTrue(task["worker"].startswith("flowers@"))
        [[name, worker]] = self.ask("/api/workers?refresh=true").items()
        self.assertTrue(name.startswith("flowers@"))
        self.assertEqual([queue["name"] for queue in worker["active_queues"]], ["celery"])
        self.assertIn("shop.bill", worker["registered"])
        self.assertEqual(worker["stats"]["total"], {"shop.bill": 2})
        sent = self.ask("/api/task/send-task/shop.bill", json.dumps({"args": [19]}).encode())
        wait_until("the task of Flower", lambda: "order 19 is billed" in self.log("worker"))
        wait_until("its state", lambda: self.ask(f"/api/task/info/{sent['task-id']}").get(
            "state") == "SUCCESS")
        self.assertNotIn("Traceback", self.log("worker") + self.log("flower"))
