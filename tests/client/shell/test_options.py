"""The options: rows, types and shells agree."""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import get_type_hints

from twisted.trial.unittest import SynchronousTestCase

from twistmq import client
from twistmq.client import aio, tx
from twistmq.client.base.errors import OptionError
from twistmq.client.shell import arguments
from twistmq.client.shell.options import (
    CLIENT,
    CONSUMER,
    POP_CONSUMER,
    PRODUCER,
    PULL_CONSUMER,
    option_page,
    values_of,
)

NAMESRV = "127.0.0.1:9"


class OptionTests(SynchronousTestCase):
    """One row an option."""

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
        """Types, bounds, choices and unknown names."""
        for rows, given in ((CLIENT, {"retries": -1}), (CLIENT, {"retries": True}),
                            (CLIENT, {"timeout_s": "3"}), (CLIENT, {"timeout_s": 0}),
                            (PRODUCER, {"codec": "gzip"}), (PRODUCER, {"in_flight_max": 0}),
                            (CONSUMER, {"mode": "all"}), (CONSUMER, {"start": 5}),
                            (CONSUMER, {"tls": object()}), (POP_CONSUMER, {"mode": "broadcast"}),
                            (POP_CONSUMER, {"pop_count": 33})):
            error = self.assertRaises(OptionError, values_of, rows, given)
            self.assertIn(next(iter(given)), str(error))
        self.assertEqual(values_of(CONSUMER, {"start": datetime(2026, 1, 1)})["start"].year, 2026)

    def test_the_page_has_every_option(self) -> None:
        """It is made of the rows."""
        page = option_page()
        for row in (*CLIENT, *PRODUCER, *CONSUMER, *POP_CONSUMER):
            self.assertIn(f"| `{row.name}` |", page)


class ShellTests(SynchronousTestCase):
    """The three shells have the same methods."""

    def test_the_shells_have_the_same_methods_and_parameters(self) -> None:
        """But for the reactor, and what only threads need; a task or a Deferred is a future."""
        only_blocking = {
            "Client": {"run", "ask", "ask_name_server", "route", "runtime_info", "timeout_s",
                       "broker_addresses", "cluster_info", "name_servers", "pull_soon", "read"},
            "Producer": {"send_batch_soon", "send_ready"}, "Consumer": set(),
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
        """The error says how to give one."""
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
