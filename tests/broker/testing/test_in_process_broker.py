"""A broker beside the tested code: as a context manager and a fixture, fast and clean."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import hookimpl
from twistmq.broker.errors import SettingsError
from twistmq.broker.testing import MemoryDisk, RawClient, running_broker
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RemotingSendError, RemotingTimeout, RequestRefused, StoreError
from twistmq.protocol.record import MessageRecord


class RunningBrokerTests(SynchronousTestCase):
    """The function ``running_broker`` in plain synchronous code."""

    def test_a_plugin_that_does_not_fit_is_an_error(self) -> None:
        """A test of a plugin must not pass because the plugin is left out."""
        class Misfit:
            @hookimpl
            def before_send(self, batc: object) -> None:
                """Have an argument that the hook lacks."""

        def run() -> None:
            with running_broker(plugins=[("misfit", Misfit)]):
                raise AssertionError("it started")

        error = self.assertRaises(SettingsError, run)
        self.assertIn("misfit", str(error))
        self.assertIn("batc", str(error))

    def test_send_and_pull(self) -> None:
        """A sent message is pulled with tag and key; the name server knows the topic."""
        with running_broker() as broker, broker.client() as client:
            answer = client.send("orders", "größe".encode(), tag="paid", keys="k1 k2", queue_id=1)
            self.assertEqual((answer.queue_id, answer.queue_offset), (1, 0))
            [message] = client.pull("orders", queue_id=1, expression="paid")
            self.assertEqual(message.body.decode(), "größe")
            self.assertEqual(message.properties_map()["KEYS"], "k1 k2")
            self.assertEqual(client.pull("orders", queue_id=1, expression="other"), [])
            self.assertEqual(client.max_offset("orders", queue_id=1), 1)
            routes = broker.service.namesrv.name_server.routes
            self.assertIn("orders", broker.call(lambda: list(routes.tables.topics)))

    def test_two_at_a_time(self) -> None:
        """Two brokers are independent."""
        with running_broker() as first, running_broker() as second:
            with first.client() as client:
                client.send("orders", b"1")
            with second.client() as client:
                error = self.assertRaises(RequestRefused, client.pull, "orders")
                self.assertEqual(error.response_code, ResponseCode.TOPIC_NOT_EXIST)

    def test_starts_well_under_a_second(self) -> None:
        """The start itself is a matter of hundredths, of this process's time: others may have all
        of the machine's."""
        begin = time.process_time()
        with running_broker():
            self.assertLess(time.process_time() - begin, 1.0)

    def test_leaves_nothing(self) -> None:
        """No thread, descriptor, port or file remains."""
        with running_broker():
            pass
        threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
        with running_broker() as broker, broker.client() as client:
            client.send("orders", b"1")
            data, address = broker.data, broker.broker_address
            self.assertTrue(data.exists())
        self.assertEqual(threading.active_count(), threads)
        self.assertEqual(len(os.listdir("/proc/self/fd")), descriptors)
        self.assertFalse(data.exists())
        host, port = address.split(":")
        self.assertRaises(OSError, socket.create_connection, (host, int(port)))

    def test_messages_survive_in_a_folder(self) -> None:
        """With a folder of the caller's, the next broker has the messages of the last."""
        data = Path(self.mktemp())
        for count in range(3):
            with running_broker(data=data) as broker, broker.client() as client:
                self.assertEqual(client.send("orders", b"x").queue_offset, count)
                self.assertEqual(len(client.pull("orders")), count + 1)
        self.assertFalse((data / "store" / "abort").exists())

    def test_memory_disk(self) -> None:
        """A store in memory creates no files."""
        data = Path(self.mktemp())
        with running_broker(data=data, io=MemoryDisk()) as broker, broker.client() as client:
            client.send("orders", b"x")
            self.assertEqual([m.body for m in client.pull("orders")], [b"x"])
        self.assertFalse((data / "store").exists())

    def test_settings_are_those_of_the_command_line(self) -> None:
        """An invalid setting is an error."""
        with running_broker({"autoCreateTopicEnable": "false"}) as broker, \
                broker.client() as client:
            error = self.assertRaises(RequestRefused, client.send, "orders", b"1")
            self.assertEqual(error.response_code, ResponseCode.TOPIC_NOT_EXIST)
        error = self.assertRaises(
            SettingsError, running_broker({"listenPort": "many"}).__enter__)
        self.assertIn("listenPort=many", str(error))

    def test_a_start_that_fails(self) -> None:
        """The reason is raised, and nothing remains."""
        data = Path(self.mktemp())
        threads = threading.active_count()
        with running_broker(data=data) as broker, broker.client() as client:
            self.assertRaises(StoreError, running_broker(data=data).__enter__)
            client.send("orders", b"the first still works")
        self.assertEqual(threading.active_count(), threads)

    def test_few_open_files(self) -> None:
        """A process with a low limit of open files gets the reason at once."""
        with mock.patch.object(resource, "getrlimit", return_value=(256, 256)):
            error = self.assertRaises(SettingsError, running_broker().__enter__)
        self.assertIn("a server needs 512", str(error))

    def test_an_error_in_the_block(self) -> None:
        """The error of the block is raised, and the broker is stopped."""
        with self.assertRaises(ZeroDivisionError), running_broker() as broker:
            data = broker.data
            raise ZeroDivisionError
        self.assertFalse(data.exists())

    def test_plugin_object(self) -> None:
        """The tested plugin need not be installed."""
        topics: list[str] = []

        class Plugin:
            @staticmethod
            @hookimpl
            def before_append(records: list[MessageRecord]) -> None:
                topics.extend(record.topic for record in records)

        with running_broker(plugins=[("mine", Plugin)]) as broker, broker.client() as client:
            client.send("orders", b"1")
            self.assertIn("mine", broker.kernel.hooks.plugin_names)
        self.assertEqual(topics, ["orders"])

    def test_a_call_runs_on_the_brokers_thread_and_gives_result_or_error(self) -> None:
        """A call runs on the broker's thread and gives result or error back."""
        with running_broker() as broker:
            name = broker.call(lambda: threading.current_thread().name)
            self.assertEqual(name, "twistmq-reactor")
            self.assertRaises(ZeroDivisionError, broker.call, lambda: 1 // 0)


class BlockingClientTests(SynchronousTestCase):
    """Failures of a connection."""

    def test_no_reply(self) -> None:
        """A missing reply and a lost connection are errors."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = RawClient(f"127.0.0.1:{server.getsockname()[1]}", timeout_s=0.05)
            self.addCleanup(client.close)
            peer, _ = server.accept()
            self.assertRaises(RemotingTimeout, client.request, 1)
            peer.close()
            self.assertRaises(RemotingSendError, client.request, 1)


FIXTURE_TEST = '''
    import sys
    assert "twisted" not in sys.modules, "the plugin imported Twisted"

    def test_plain():
        assert "twisted" not in sys.modules

    def test_with_a_broker(twistmq_broker):
        with twistmq_broker.client() as client:
            client.send("orders", b"1")
            assert [m.body for m in client.pull("orders")] == [b"1"]

    def test_trial_beside_it(pytester=None):
        from twistmq.broker.testing import BrokerTestCase

        class OrderTests(BrokerTestCase):
            async def test_send(self):
                assert (await self.send("orders", b"1")).code == 0

        import unittest
        result = unittest.TestResult()
        OrderTests("test_send").run(result)
        assert result.wasSuccessful(), result.errors + result.failures

    def test_with_another_broker(twistmq_broker):
        with twistmq_broker.client() as client:
            assert client.send("orders", b"1").queue_offset == 0

    def test_with_a_producer_and_a_consumer(twistmq_producer, twistmq_consumer):
        twistmq_producer.send("orders", b"1")
        for message in twistmq_consumer("orders"):
            assert message.body == b"1"
            break
'''


class PytestFixtureTests(SynchronousTestCase):
    """The fixtures in plain pytest functions of another project."""

    def test_the_fixture_works_in_plain_functions_and_imports_late(self) -> None:
        """It works in synchronous functions, beside trial, and imports nothing before its use."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "test_orders.py").write_text(textwrap.dedent(FIXTURE_TEST))
        (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "twistmq.broker.testing.pytest_plugin"],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("5 passed", result.stdout, msg=result.stdout + result.stderr)

    def test_the_package_is_lazy(self) -> None:
        """The names of the package are loaded when they are used."""
        code = ("import sys, twistmq.broker.testing as testing, "
                "twistmq.broker.testing.pytest_plugin\n"
                "assert not [m for m in sys.modules if m.split('.')[0] == 'twisted']\n"
                "for name in testing.__all__: assert getattr(testing, name).__name__ == name\n"
                "try: testing.nothing\n"
                "except AttributeError as error: print(error)")
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertIn("has no attribute 'nothing'", result.stdout, msg=result.stderr)
