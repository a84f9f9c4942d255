"""The names of ``twistmq.client``, which are imported at their first use."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
from concurrent.futures import Future as ThreadFuture
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

import twistmq.broker.api
import twistmq.client
import twistmq.client.aio
import twistmq.client.testing
import twistmq.client.tx
from twistmq.broker.testing import running_broker
from twistmq.client import Client, Consumer, Producer, aio, tx
from twistmq.client.blocking.futures import running_future
from twistmq.client.shell.options import CLIENT, CONSUMER, POP_CONSUMER, PRODUCER, PULL_CONSUMER


class NameTests(SynchronousTestCase):
    """The function ``__getattr__`` of the package."""

    def test_each_public_name_is_found(self) -> None:
        """The table of modules has every name of ``__all__`` and no other."""
        self.assertEqual(sorted(twistmq.client._HOMES), sorted(twistmq.client.__all__))
        for name in twistmq.client.__all__:
            self.assertIsNotNone(getattr(twistmq.client, name), msg=name)

    def test_completion_and_help_know_the_names(self) -> None:
        """The public names are listed, and no helper of the package is."""
        for package in (twistmq.client, twistmq.client.aio, twistmq.client.tx,
                        twistmq.broker.api, twistmq.client.testing):
            listed = {name for name in dir(package) if not name.startswith("__")}
            modules = {"aio", "codecs", "testing", "tx"} if package is twistmq.client else set()
            self.assertEqual(listed, {*package.__all__, *modules}, msg=package.__name__)

    def test_the_modules_of_the_other_styles_are_attributes(self) -> None:
        """A program that imports only the package may use them."""
        code = ("import twistmq.client\n"
                "print(twistmq.client.aio.Producer, twistmq.client.testing.RecordingProducer)")
        done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                              check=True)
        self.assertIn("twistmq.client.aio.Producer", done.stdout)

    def test_help_has_the_options(self) -> None:
        """Each class in each style has its options with their meanings."""
        for package in (twistmq.client, twistmq.client.aio, twistmq.client.tx):
            for name, rows in (("Client", CLIENT), ("Producer", PRODUCER), ("Consumer", CONSUMER),
                               ("PullConsumer", PULL_CONSUMER), ("PopConsumer", POP_CONSUMER)):
                text = inspect.getdoc(getattr(package, name)) or ""
                for row in rows:
                    self.assertIn(f"\n{row.name}={row.default!r}\n    {row.help}", text)
                self.assertIn("timeout_s", text)
                self.assertNotIn("the page of options", text)

    def test_another_name_is_an_attribute_error(self) -> None:
        """It is the error of any module."""
        with self.assertRaisesRegex(AttributeError, "'twistmq.client' has no attribute 'Nothing'"):
            twistmq.client.Nothing  # noqa: B018


class ShownTests(SynchronousTestCase):
    """The representations of objects."""

    def test_objects_show_their_servers_groups_and_topics(self) -> None:
        """They also show whether they are closed."""
        with running_broker() as broker:
            where = broker.namesrv_address
            with Client(where) as client:
                producer = Producer(client=client, group="p")
                consumer = Consumer(client=client, group="g", topics=["b", "a"])
                self.assertEqual(repr(producer), "<producer of group p>")
                self.assertEqual(repr(consumer), "<consumer of group g with topics a, b>")
                self.assertEqual(repr(client), f"<client of {where}, producer of group p, "
                                               "consumer of group g with topics a, b>")
                consumer.close()
            self.assertEqual(repr(consumer), "<consumer of group g with topics a, b, closed>")
            self.assertEqual(repr(client), f"<client of {where}, closed>")

    def test_a_future_and_a_transaction_show_their_state(self) -> None:
        """The text has words, and not the name of a private class."""
        future: ThreadFuture[int] = running_future()
        self.assertRegex(repr(future), "^<future at 0x[0-9a-f]+, running>$")
        future.set_exception(KeyError("x"))
        self.assertRegex(repr(future), ", failed with KeyError>$")
        with running_broker() as broker, Producer(
                broker.namesrv_address, on_check=lambda message: None) as producer:
            for state in ("committed", "rolled back", "left to on_check"):
                transaction = producer.transaction("t", b"x")
                before = f"<transaction of message {transaction.id}, "
                self.assertEqual(repr(transaction), before + "not begun>")
                with contextlib.suppress(KeyError), transaction:
                    self.assertEqual(repr(transaction), before + "open>")
                    if state == "rolled back":
                        transaction.rollback()
                    elif state == "left to on_check":
                        raise KeyError
                self.assertEqual(repr(transaction), f"{before}{state}>")

    def test_attributes_that_are_not_promised_have_an_underscore(self) -> None:
        """The client of a producer or consumer can be shared, so it is promised."""
        with running_broker() as broker:
            where = broker.namesrv_address
            for module in (twistmq.client, aio, tx):
                options: dict[str, dict[str, Any]] = {
                    "Client": {}, "Producer": {"group": "p"},
                    **{name: {"group": name, "topics": "T"}
                       for name in ("Consumer", "PullConsumer", "PopConsumer")}}
                for name, arguments in options.items():
                    reactor = MemoryReactorClock()
                    if module is tx:
                        arguments["reactor"] = reactor
                    made = getattr(module, name)(where, **arguments)
                    # A producer of Twisted begins at once.
                    reactor.advance(0.1)
                    public = {each for each in vars(made) if not each.startswith("_")}
                    self.assertEqual(public, set() if name == "Client" else {"client"},
                                     msg=f"{module.__name__}.{name}")
                    if module is twistmq.client:
                        made.close()

    def test_a_client_that_was_never_closed(self) -> None:
        """The end of the program warns of it if the program shows such warnings."""
        with running_broker() as broker:
            where = broker.namesrv_address
            code = ("from twistmq.client import Producer\n"
                    f"producer = Producer({where!r}, group='p')\n"
                    "producer.send_soon('T', b'1')")
            for arguments, count in (("-Wdefault", 1), ("-Werror", 1), ("-Wignore", 0)):
                done = subprocess.run([sys.executable, arguments, "-c", code], text=True,
                                      capture_output=True, check=True)
                self.assertEqual(done.stderr.count(
                    f"never closed: <client of {where}, producer of group p>"), count,
                    msg=done.stderr)
