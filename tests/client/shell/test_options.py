"""The options: their rows, types and shells agree."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from math import inf, nan
from typing import Any, get_type_hints

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from twistmq import client
from twistmq.client import Message, ReceivedMessage, aio, tx
from twistmq.client.base.errors import OptionError
from twistmq.client.base.interceptors import Interceptor
from twistmq.client.core.consumer.assigned_queues import MemberOptions, PopOptions
from twistmq.client.core.consumer.flow_control import PullLimits
from twistmq.client.core.consumer.strategies import AveragelyByCircle
from twistmq.client.core.producer.fault_tolerance import TABLE_4
from twistmq.client.core.producer.outgoing_message import ProducerOptions
from twistmq.client.roles.parts import UNTIMED_MS
from twistmq.client.shell import arguments
from twistmq.client.shell.options import (
    CLIENT,
    CONSUMER,
    POP_CONSUMER,
    PRODUCER,
    PULL_CONSUMER,
    milliseconds,
    option_page,
    values_of,
)
from twistmq.client.testing import RecordingProducer

NAMESRV = "127.0.0.1:9"


class OptionTests(SynchronousTestCase):
    """One row for each option."""

    def test_each_row_has_a_type_for_type_checkers(self) -> None:
        """The typed dictionaries have the names of the rows."""
        for rows, kind in ((CLIENT, arguments.ClientArguments),
                           ((*CLIENT, *PRODUCER), arguments.ProducerArguments),
                           ((*CLIENT, *CONSUMER), arguments.ConsumerArguments),
                           ((*CLIENT, *PULL_CONSUMER), arguments.PullArguments),
                           ((*CLIENT, *POP_CONSUMER), arguments.PopArguments)):
            self.assertEqual({row.name for row in rows}, set(get_type_hints(kind)))

    def test_each_default_is_a_value_of_its_option(self) -> None:
        """The defaults pass the checks of their rows."""
        for row in (*CLIENT, *PRODUCER, *CONSUMER, *POP_CONSUMER):
            row.check(row.default)

    def test_a_value_that_is_none_of_an_option_is_an_error_that_names_it(self) -> None:
        """Types, limits, choices and unknown names are checked."""
        for rows, given in ((CLIENT, {"retries": -1}), (CLIENT, {"retries": True}),
                            (CLIENT, {"timeout_s": "3"}), (CLIENT, {"timeout_s": 0}),
                            (PRODUCER, {"codec": "gzip"}), (PRODUCER, {"in_flight_max": 0}),
                            (CONSUMER, {"mode": "all"}), (CONSUMER, {"start": True}),
                            (CONSUMER, {"tls": object()}), (POP_CONSUMER, {"mode": "broadcast"}),
                            (POP_CONSUMER, {"pop_count": 33}),
                            (PRODUCER, {"encode": "json"}), (PRODUCER, {"on_check": 5}),
                            (CONSUMER, {"strategy": "AVG"}), (CONSUMER, {"decode": 3}),
                            (CONSUMER, {"strategy": AveragelyByCircle}),
                            (CONSUMER, {"on_assigned": 5}), (POP_CONSUMER, {"on_lost": "x"}),
                            (CLIENT, {"interceptors": [5]}), (CLIENT, {"interceptors": 5}),
                            (CLIENT, {"interceptors": [Interceptor]}),
                            (CLIENT, {"timeout_s": nan}), (CLIENT, {"retry_wait_s": nan}),
                            (CLIENT, {"connect_timeout_s": inf}),
                            (PRODUCER, {"attempt_timeout_s": nan}),
                            (CLIENT, {"instance": "\ud800"}), (CLIENT, {"unit": "a\x1b[31m"})):
            error = self.assertRaises(OptionError, values_of, rows, given)
            self.assertIn(next(iter(given)), str(error))
        self.assertEqual(values_of(CONSUMER, {"start": datetime(2026, 1, 1)})["start"].year, 2026)

    def test_a_class_in_place_of_an_object_is_named_with_what_to_give(self) -> None:
        """Each method that the client calls must exist."""
        error = self.assertRaises(OptionError, values_of, CONSUMER,
                                  {"strategy": AveragelyByCircle})
        self.assertIn("give AveragelyByCircle()", str(error))
        values_of(CLIENT, {"interceptors": (Interceptor(),)})
        # A handler is called without an interceptor that has no method for it.
        self.assertEqual(
            {name for name in vars(Interceptor) if not name.startswith("_")} - {"around_handler"},
            set(str(self.assertRaises(
                OptionError, values_of, CLIENT, {"interceptors": [5]})).partition(
                    "Interceptor: ")[2].split(", ")))

    def test_a_name_that_another_call_has_is_not_suggested(self) -> None:
        """A producer has no topics, and a transaction has no time-out."""
        for call, name in ((lambda: client.Producer(NAMESRV, topics="a"),  # type: ignore[call-arg]
                            "topics"),
                           (lambda: RecordingProducer(foo=1), "foo")):
            error = str(self.assertRaises(OptionError, call))
            self.assertTrue(error.startswith(f"there is no option {name}; there are "), error)
            self.assertNotIn(f" {name},", error)
            self.assertIn("on_check", error)

    def test_a_time_of_a_call_is_a_number_of_seconds_up_to_a_year(self) -> None:
        """An endless time cannot be a deadline; the error names the argument."""
        self.assertEqual([milliseconds(each) for each in (0, 0.5, 31_536_000)],
                         [0, 500, 31_536_000_000])
        for bad in (nan, inf, -inf, 1e308, -1, "3", None):
            error = self.assertRaises(OptionError, milliseconds, bad, "wait_s")
            self.assertIn(f"wait_s is {bad!r}", str(error))

    def test_the_page_has_every_option(self) -> None:
        """The page is made from the rows."""
        page = option_page()
        for row in (*CLIENT, *PRODUCER, *CONSUMER, *POP_CONSUMER):
            self.assertIn(f"| `{row.name}` |", page)


def _decode(message: ReceivedMessage[Any]) -> object:
    return message.body


class ValueTests(SynchronousTestCase):
    """The value of each option is where the core looks for it, in each style."""

    def made(self, kind: str, **options: Any) -> Iterator[Any]:
        """Make an object of a kind in each style; the one of Twisted may start timers at once."""
        memory = MemoryReactorClock()
        in_memory: dict[str, Any] = {"reactor": memory}
        for module, more in ((client, {}), (aio, {}), (tx, in_memory)):
            yield getattr(module, kind)(NAMESRV, **more, **options)
        memory.advance(0)

    def test_of_a_producer(self) -> None:
        """Its trace has the producer's group, and its checks have the function."""
        own: dict[str, Any] = {
            "group": "p", "require_safe": True, "compress_over": 77, "codec": "lz4",
            "in_flight_max": 5, "in_flight_bytes_max": 6000, "auto_batch": True,
            "attempt_timeout_s": 0.25, "await_master": True, "avoid_slow": True,
            "latency_table": "4.9",
            "encode": str.encode, "on_check": _decode, "trace": True}
        self.assertEqual(set(own), {row.name for row in PRODUCER})
        for producer in self.made("Producer", **own, timeout_s=1.5, retries=7):
            sender = producer._sender
            self.assertEqual(sender.options, ProducerOptions(
                group="p", timeout_ms=1500, retries=7, attempt_timeout_ms=250, require_safe=True,
                compress_over=77, codec="lz4", in_flight_max=5, in_flight_bytes_max=6000,
                auto_batch=True, avoid_slow=True, latencies=TABLE_4, await_master=True))
            self.assertEqual(sender.prepare(Message("T", "text")).body, b"text")
            self.assertIs(sender.checks.on_check, _decode)
            self.assertIsNotNone(sender.trace)

    def test_of_consumers(self) -> None:
        """The consumers with handlers, with polls, and with pops are tested."""
        limits, strategy = PullLimits(count=3), AveragelyByCircle()
        assigned: list[object] = []
        lost: list[object] = []
        shared: dict[str, Any] = {
            "strategy": strategy, "cache_bytes_max": 999, "decode": _decode,
            "on_assigned": assigned.append, "on_lost": lost.append}
        pulled: dict[str, Any] = {
            "start": datetime(2026, 1, 1, tzinfo=UTC), "limits": limits, "pull_count": 9,
            "damaged": "deliver"}
        handled: dict[str, Any] = {
            "order": "queue", "max_attempts": 4, "consume_timeout_s": 2.5, "suspend_s": 0.5,
            "undecodable": "skip", "auto_acknowledge": False, "trace": True}
        start = int(pulled["start"].timestamp() * 1000)
        values: dict[str, Any] = {
            "group": "g", "strategy": strategy, "cache_bytes_max": 999}
        of_handled = {"in_order": True, "max_attempts": 4, "consume_timeout_ms": 2500,
                      "suspend_ms": 500}
        of_pulled = {"start": start, "limits": limits, "pull_count": 9, "damaged": "deliver"}
        for kind, rows, own, options in (
            ("Consumer", CONSUMER,
             {**shared, **pulled, **handled, "mode": "broadcast", "offset_folder": self.mktemp()},
             MemberOptions(**values, **of_handled, **of_pulled, is_broadcast=True)),
            ("PullConsumer", PULL_CONSUMER, {**shared, **pulled},
             MemberOptions(**values, **of_pulled, consume_timeout_ms=UNTIMED_MS)),
            ("PopConsumer", POP_CONSUMER,
             {**shared, **handled, "start": "first", "invisible_s": 8, "pop_count": 3,
              "in_flight_max": 12},
             PopOptions(**values, **of_handled, start="first", invisible_ms=8000, pull_count=3,
                        in_flight_max=12)),
        ):
            self.assertEqual(set(own), {row.name for row in rows}, msg=kind)
            for consumer in self.made(kind, group="g", topics="T", **own):
                member = consumer._member
                self.assertEqual(member.options, options, msg=kind)
                self.assertIs(member.decode, _decode, msg=kind)
                self.assertIn(assigned.append, member.listeners.on_assigned, msg=kind)
                self.assertIn(lost.append, member.listeners.on_lost, msg=kind)
                if kind != "PullConsumer":
                    self.assertIsNotNone(member._parts.trace, msg=kind)


class ShellTests(SynchronousTestCase):
    """The three shells have the same methods."""

    def test_the_shells_have_the_same_methods_and_parameters(self) -> None:
        """Exceptions are the reactor and methods for threads; a task or a Deferred is a future."""
        only_blocking = {
            "Client": {"ask", "ask_name_server", "route", "runtime_info", "timeout_s",
                       "broker_addresses", "cluster_info", "name_servers", "pull_soon", "read"},
            "Producer": {"send_batch_soon"}, "Consumer": set(),
            "PullConsumer": set(), "PopConsumer": set()}
        for name in ("Client", "Producer", "Consumer", "PullConsumer", "PopConsumer"):
            ours = self.methods(getattr(client, name))
            for shell in (aio, tx):
                theirs = self.methods(getattr(shell, name))
                missing = set(ours) - set(theirs) - only_blocking[name]
                self.assertEqual(missing, set(), msg=f"{shell.__name__}.{name}")
                for method in set(ours) & set(theirs) - {"__init__", "run"}:
                    self.assertEqual(
                        set(ours[method]) - {"timeout_s"}, set(theirs[method]) - {"timeout_s"},
                        msg=f"{shell.__name__}.{name}.{method}")

    def methods(self, kind: type) -> dict[str, list[str]]:
        """The public methods of a class, with the names of their parameters."""
        return {name: list(inspect.signature(value).parameters)
                for name, value in inspect.getmembers(kind)
                if not name.startswith("_") and inspect.isfunction(value)}

    def test_a_client_without_a_name_server_is_an_error(self) -> None:
        """The error explains how to give one."""
        self.patch_environment()
        error = self.assertRaises(OptionError, client.Client)
        self.assertIn("NAMESRV_ADDR", str(error))
        self.assertRaises(OptionError, client.Client, "no port")
        self.assertRaises(OptionError, client.Client, NAMESRV, retries=-1)
        self.assertRaises(OptionError, tx.Producer, NAMESRV)

    def patch_environment(self) -> None:
        """Let no name server be set for the process."""
        import os

        saved = os.environ.pop("NAMESRV_ADDR", None)
        if saved is not None:
            self.addCleanup(os.environ.__setitem__, "NAMESRV_ADDR", saved)
