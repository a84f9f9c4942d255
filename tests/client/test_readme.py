"""The examples of the client's pages and the front page run, and the options match the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.certificates import Authority
from twistmq.broker.testing import running_broker
from twistmq.client import Client
from twistmq.client.shell.options import option_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "client/README.md").read_text()
FRONT = (ROOT / "README.md").read_text()


class ExampleTests(TestCase):
    """The examples with a running broker."""

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
        """Return an example of the page."""
        found = re.search(rf"<!-- example: {name} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
        assert found is not None, name
        return found[1]

    def check_committed(self, group: str, topic: str, count: int) -> Deferred[None]:
        """The group of an example has acknowledged so many messages."""
        def check() -> None:
            with Client(self.broker.namesrv_address) as client:
                self.assertEqual(sum(client.group_offset(group, queue) or 0
                                     for queue in client.read_queues(topic)), count)

        return deferToThread(check)

    @inlineCallbacks
    def test_the_blocking_example_runs(self) -> Any:
        """A thousand and one messages are sent, consumed and acknowledged."""
        yield self.run_example(self.example("blocking"))
        yield self.check_committed("billing", "orders", 1001)

    @inlineCallbacks
    def test_the_asyncio_example_runs(self) -> Any:
        """A coroutine sends and consumes."""
        yield self.run_example(self.example("aio"))
        yield self.check_committed("counting", "clicks", 2)

    @inlineCallbacks
    def test_the_twisted_example_runs(self) -> Any:
        """A handler stops its consumer."""
        yield self.run_example(self.example("tx"))
        yield self.check_committed("viewing", "views", 1)

    def test_the_example_of_a_transaction_runs(self) -> Deferred[Any]:
        """A block commits its message."""
        return self.run_example(self.example("transaction"))

    def test_the_example_of_popping_runs(self) -> Deferred[Any]:
        """Messages are received, extended, acknowledged and given back."""
        return self.run_example(self.example("pop"))

    @inlineCallbacks
    def test_the_examples_of_acknowledgements_run(self) -> Any:
        """Each run of the first gets one more message; the second gets ten at once."""
        for count in (1, 2, 3):
            yield self.run_example(self.example("acknowledge"))
            yield self.check_committed("billing", "orders", count)
        yield self.run_example(self.example("tasks"))
        yield self.check_committed("packing", "parcels", 10)

    @inlineCallbacks
    def test_the_examples_of_errors_and_values_run(self) -> Any:
        """A send is repeated, and a value is decoded."""
        yield self.run_example(self.example("values"))
        yield self.run_example(self.example("models"))
        yield self.run_example(self.example("errors"))

    def test_the_example_of_tls_runs(self) -> Deferred[Any]:
        """The broker requires TLS."""
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        folder.mkdir()
        authority = Authority(folder)
        pair = authority.pair("server", hosts=("127.0.0.1",))
        settings = {"tls.server.mode": "enforcing", "tls.server.certPath": str(pair.cert),
                    "tls.server.keyPath": str(pair.key)}
        running = running_broker(settings)
        self.broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        return self.run_example(self.example("tls").replace("ca.pem", str(authority.cert)))

    def test_the_examples_of_tests_run(self) -> Deferred[Any]:
        """They run without a broker, and with brokers in memory."""
        return self.run_example(self.example("testing") + self.example("memory"))

    @inlineCallbacks
    def test_the_example_on_the_front_page_runs(self) -> Any:
        """It is the first block of Python there; each run acknowledges its message."""
        found = re.search(r"```python\n(from twistmq.client .*?)```", FRONT, re.DOTALL)
        assert found is not None
        for count in (1, 2, 3):
            yield self.run_example(found[1])
            yield self.check_committed("billing", "orders", count)


def broken_loops(text: str) -> list[str]:
    """Return the loops over a consumer that end by ``break`` or ``return`` unacknowledged.

    :returns: their first lines.
    """
    found, lines = [], text.splitlines()
    for number, line in enumerate(lines):
        loop = re.match(r"(\s*)(?:async )?for .+ in .*consumer.*:", line)
        if loop is None:
            continue
        body = []
        for inner in lines[number + 1:]:
            if inner.strip() and len(inner) - len(inner.lstrip()) <= len(loop[1]):
                break
            body.append(inner)
        is_left = any(re.match(r"\s*(?:break|return)\b", inner) for inner in body)
        # A task that the loop creates acknowledges its message.
        if is_left and not re.search(r"\.acknowledge\(|create_task\(", "\n".join(body)):
            found.append(line.strip())
    return found


class LoopTests(SynchronousTestCase):
    """No example leaves a handled message unacknowledged."""

    def test_no_loop_over_a_consumer_ends_with_a_break(self) -> None:
        """All pages, and the docstrings of public modules, are checked."""
        files = [path for path in ROOT.rglob("*.md") if ".venv" not in path.parts]
        for folder in ("client", "spark_bridge", "integrations", "broker/testing"):
            files += (ROOT / folder).rglob("*.py")
        self.assertGreater(len(files), 100)
        for path in files:
            text = path.read_text()
            if path.suffix == ".py":
                text = "\n".join(re.findall(r'"""(.*?)"""', text, re.DOTALL))
            self.assertEqual(broken_loops(text), [], msg=str(path))

    def test_such_a_loop_is_found(self) -> None:
        """The end may be unconditional or conditional."""
        for end in ("    break", "    if body:\n        return 1", "    break  # enough"):
            self.assertEqual(len(broken_loops(f"for one in enumerate(consumer):\n{end}\nx")), 1)
        self.assertEqual(broken_loops("for one in consumer:\n    consumer.stop()\nbreak"), [])


class PageTests(SynchronousTestCase):
    """The tables of the page."""

    def test_the_options_are_those_of_the_code(self) -> None:
        """The page is made from the rows."""
        self.assertIn(option_page().strip(), PAGE)
