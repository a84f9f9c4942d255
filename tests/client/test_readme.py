"""The client's page and README's front: examples run, and options are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twistmq.broker.testing import running_broker
from twistmq.client.options import option_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "client/README.md").read_text()
FRONT = (ROOT / "README.md").read_text()


class ExampleTests(TestCase):
    """Examples against a running broker."""

    timeout = 120

    def setUp(self) -> None:
        """Start a broker."""
        running = running_broker()
        self.broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)

    def run_example(self, code: str) -> Deferred[Any]:
        """Run an example in a process of its own, with the address of the broker."""
        code = code.replace("127.0.0.1:9876", self.broker.namesrv_address)

        def run() -> None:
            result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                    timeout=60)
            self.assertEqual((result.returncode, result.stderr), (0, ""))

        return deferToThread(run)

    def example(self, name: str) -> str:
        """An example of the page."""
        found = re.search(rf"<!-- example: {name} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
        assert found is not None, name
        return found[1]

    def test_the_blocking_example_runs(self) -> Deferred[Any]:
        """A thousand messages are sent and consumed."""
        return self.run_example(self.example("blocking"))

    def test_the_asyncio_example_runs(self) -> Deferred[Any]:
        """A coroutine sends and consumes."""
        return self.run_example(self.example("aio"))

    def test_the_twisted_example_runs(self) -> Deferred[Any]:
        """A handler stops its consumer."""
        return self.run_example(self.example("tx"))

    def test_the_example_of_a_transaction_runs(self) -> Deferred[Any]:
        """A block commits its message."""
        return self.run_example(self.example("transaction"))

    def test_the_example_of_popping_runs(self) -> Deferred[Any]:
        """Messages are received, extended, acknowledged and given back."""
        return self.run_example(self.example("pop"))

    def test_the_examples_of_tests_run(self) -> Deferred[Any]:
        """Without a broker, and with brokers in memory."""
        return self.run_example(self.example("testing") + self.example("memory"))

    def test_the_example_on_the_front_page_runs(self) -> Deferred[Any]:
        """It is the first block of Python there."""
        found = re.search(r"```python\n(from twistmq.client .*?)```", FRONT, re.DOTALL)
        assert found is not None
        return self.run_example(found[1])


class PageTests(SynchronousTestCase):
    """The tables."""

    def test_the_options_are_those_of_the_code(self) -> None:
        """The page is made from the rows."""
        self.assertIn(option_page().strip(), PAGE)
