"""The page of frameworks: its files run as they are printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import wait_until
from twistmq.broker.testing import running_broker
from twistmq.client import Client, Producer, RequestRefused

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "client/FRAMEWORKS.md").read_text()


class ExampleTests(SynchronousTestCase):
    """Each example is run with a broker."""

    def setUp(self) -> None:
        running = running_broker()
        self.broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        self.folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.folder.mkdir()
        for name, code in re.findall(r"<!-- example: (\S+) -->\n```python\n(.*?)```", PAGE,
                                     re.DOTALL):
            (self.folder / name).write_text(
                code.replace("127.0.0.1:9876", self.broker.namesrv_address))

    @contextmanager
    def program(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program of the page in its folder; its output is in the file log."""
        with (self.folder / "log").open("w") as output:
            process = subprocess.Popen([sys.executable, *arguments], cwd=self.folder,
                                       stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def log(self) -> str:
        """Return the output of the program."""
        return (self.folder / "log").read_text()

    def stop(self, process: subprocess.Popen[bytes], status: int = 0) -> None:
        """Stop a program by a signal; it ends without an error."""
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), status, msg=self.log())
        self.assertNotIn("Traceback", self.log())

    def send(self, count: int) -> None:
        """Send orders."""
        with Producer(self.broker.namesrv_address) as producer:
            for number in range(count):
                producer.send("orders", b"o-%d" % number)

    def committed(self, group: str) -> int:
        """The number of orders that a group has acknowledged."""
        with Client(self.broker.namesrv_address) as client:
            return sum(client.group_offset(group, queue) or 0
                       for queue in client.read_queues("orders"))

    def test_fastapi(self) -> None:
        """A request sends an order, and the task bills it; the end commits it."""
        if find_spec("fastapi") is None:
            self.skipTest("the extra test is not installed: fastapi is missing")
        # Without a file of settings, of which pytest would otherwise look for one above.
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                               "-c", os.devnull, "--rootdir", ".", "test_shop.py"],
                              cwd=self.folder,
                              capture_output=True, text=True, timeout=100, check=False)
        self.assertIn("1 passed", done.stdout, msg=done.stdout + done.stderr)
        self.assertEqual(self.committed("billing"), 1)

    def test_fastapi_without_a_broker(self) -> None:
        """A request gets 503, and a wrong one 422."""
        if find_spec("fastapi") is None:
            self.skipTest("the extra test is not installed: fastapi is missing")
        path = self.folder / "shop.py"
        path.write_text(path.read_text().replace(
            self.broker.namesrv_address + '") as client', '127.0.0.1:1", timeout_s=0.2) as client'))
        code = ("from fastapi.testclient import TestClient\n"
                "from shop import app\n"
                "with TestClient(app) as client:\n"
                "    print(client.post('/orders', json={'id': 'a', 'amount': 1}).status_code,\n"
                "          client.post('/orders', json={'id': 'a'}).status_code)\n")
        done = subprocess.run([sys.executable, "-c", code], cwd=self.folder, capture_output=True,
                              text=True, timeout=100, check=False)
        self.assertEqual(done.stdout, "503 422\n", msg=done.stderr)

    def test_asyncio(self) -> None:
        """A signal ends the service, which has committed the handled messages."""
        self.send(20)
        with self.program("packing.py") as process:
            wait_until("the orders", lambda: self.log().count("packing o-") == 20)
            self.stop(process)
        self.assertEqual(self.committed("packing"), 20)

    def test_twisted(self) -> None:
        """The Twisted example sends a shipment for each order, and ends after a signal."""
        self.send(20)
        with self.program("-c", "from twisted.scripts.twistd import run; run()", "--nodaemon",
                          "--python", "shipping.tac") as process:
            wait_until("the shipments", lambda: self.shipments() == 20)
            # twistd ends by the signal that it received, once everything is stopped.
            self.stop(process, -signal.SIGTERM)
            self.assertIn("Server Shut Down", self.log())
        self.assertEqual(self.committed("shipping"), 20)

    def shipments(self) -> int:
        """The number of messages in the topic of shipments."""
        with Client(self.broker.namesrv_address) as client:
            try:
                return sum(client.max_offset(queue) for queue in client.read_queues("shipments"))
            except RequestRefused:
                return 0
