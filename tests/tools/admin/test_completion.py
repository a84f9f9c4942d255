"""The completion of names in a shell."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Final
from unittest import mock

import click
from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import wait_until
from tests.tools.admin.case import AdminCase
from twistmq.tools.admin import completion
from twistmq.tools.admin.command_line import AdminCommand, all_commands

_MAIN: Final = "from twistmq.tools.command_line import main; raise SystemExit(main())"


def completed(words: str, shell: str = "bash", **environment: str) -> list[str]:
    """Return the completions of the last of some words, from another process.

    :raises AssertionError: when anything is said besides.
    """
    *_, last = words.split(" ")
    given = {name: value for name, value in os.environ.items()
             if not name.startswith(("ROCKETMQ_", "NAMESRV_"))}
    found = subprocess.run(
        [sys.executable, "-c", _MAIN], text=True, timeout=60, check=False, capture_output=True,
        env={**given, "_TWISTMQ_COMPLETE": f"{shell}_complete", "COMP_WORDS": words,
             "COMP_CWORD": last if shell == "fish" else str(words.count(" ")), **environment})
    assert not found.stderr, found.stderr
    lines = found.stdout.split("\n") if found.stdout.strip() else []
    if shell == "zsh":
        return lines[1::3]
    return [line.partition(",")[2] for line in lines if line]


class CompletionTests(AdminCase):
    """Completion with servers."""

    def setUp(self) -> None:
        super().setUp()
        self.rows("updateTopic", "-b", self.broker, "-t", "orders")
        self.rows("updateTopic", "-b", self.broker, "-t", "order-lines")
        self.rows("updateSubGroup", "-b", self.broker, "-g", "payers")
        self.rows("updateTopic", "-b", self.broker, "-t", "%RETRY%packers")

    def names(self, words: str, shell: str = "bash") -> list[str]:
        """Return the completions; a busy machine, which needs more than half a second, repeats."""
        found: list[str] = []

        def any_found() -> list[str]:
            nonlocal found
            found = completed(f"twistmq admin {words}", shell,
                              NAMESRV_ADDR=self.running.namesrv_address)
            return found

        wait_until(f"{words} is completed", any_found)
        return found

    def test_topics_are_completed_by_prefix_and_retry_topics_after_percent(self) -> None:
        """Topics with the prefix are completed, retry topics only after %."""
        self.assertEqual(self.names("topicStatus -t ord"), ["order-lines", "orders"])
        self.assertEqual(self.names("topicStatus --topic %RETRY%pa"), ["%RETRY%packers"])
        names = self.names("topicRoute -t ")
        self.assertLessEqual({"orders", "TBW102"}, set(names))
        self.assertNotIn("%RETRY%packers", names)
        for shell in ("zsh", "fish"):
            self.assertEqual(self.names("topicStatus -t orders", shell)[:1], ["orders"], msg=shell)

    def test_groups_with_settings_or_retry_topics_are_completed(self) -> None:
        """Groups with settings are completed, and those that only have a retry topic."""
        wait_until("both groups are completed", lambda: self.names(
            "consumerProgress -g pa") == ["packers", "payers"])
        self.assertEqual(self.names("cloneGroupOffset -s payers -d pac"), ["packers"])

    def test_clusters_are_completed_from_a_name_server(self) -> None:
        """A name server suffices."""
        self.assertEqual(self.names("clusterRT -c D"), ["DefaultCluster"])

    def test_servers_of_the_line(self) -> None:
        """Addresses in the command line take precedence."""
        words = f"twistmq admin topicStatus -n {self.running.namesrv_address} -t orders"
        wait_until("the topic is completed", lambda: completed(
            words, NAMESRV_ADDR="127.0.0.1:1") == ["orders"])

    def test_a_broker_that_is_silent(self) -> None:
        """The names from the other brokers are completed."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            self.register(address)
            self.assertEqual(self.names("consumerProgress -g pac"), ["packers"])

    def register(self, address: str) -> None:
        """Register a broker with this address, which is asked first."""
        from twistmq.broker.edge.clock import now_ms
        from twistmq.broker.testing.name_server import make_registration

        routes = self.running.service.namesrv.name_server.routes
        self.running.call(routes.register, make_registration(
            address, name="a", cluster="DefaultCluster"), now_ms())


class FailureTests(SynchronousTestCase):
    """Completion without servers, or with useless ones."""

    def test_unreachable_servers_complete_nothing_and_print_nothing(self) -> None:
        """No server listens or answers, or the address is invalid: nothing is printed."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            nobody = f"127.0.0.1:{silent.getsockname()[1]}"
            for address in (nobody, "127.0.0.1:1", "no such address"):
                self.assertEqual(completed("twistmq admin topicStatus -t a", NAMESRV_ADDR=address),
                                 [], msg=address)

    def test_no_secret_key(self) -> None:
        """The secret key would have to be typed, so no request is signed."""
        self.assertEqual(completed("twistmq admin topicStatus --access-key me -t a"), [])

    def test_half_a_second(self) -> None:
        """All slow servers together are waited for at most half a second."""
        option = next(each for each in AdminCommand(all_commands()["topicStatus"]).params
                      if each.name == "topic")
        context = click.Context(click.Command("x"))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            context.params = {"name_servers": ";".join([address] * 5)}
            begin = time.monotonic()
            self.assertEqual(option.shell_complete(context, "a"), [])
            seconds = time.monotonic() - begin
        self.assertGreaterEqual(seconds, 0.45)
        # A machine that is busy has its own time.
        self.assertLess(seconds, 5)

    def test_which_options(self) -> None:
        """Options for topics and groups are completed; files, numbers and others are not."""
        said: Mapping[str, list[str]] = {name: [] for name in all_commands()}
        with mock.patch.object(completion, "_ask", lambda make, find: ["found"]):
            for name, row in all_commands().items():
                for each in AdminCommand(row).params:
                    context = click.Context(click.Command("x"))
                    if [item.value for item in each.shell_complete(context, "f")] == ["found"]:
                        said[name].append(str(each.name))
        self.assertEqual(said["resetOffsetByTime"], ["group", "topic", "route_topic"])
        self.assertEqual(said["cloneGroupOffset"], ["source", "destination", "topic"])
        self.assertEqual(said["updateTopicList"], ["cluster"])
        self.assertEqual(said["producerConnection"], ["topic"])
        self.assertEqual(said["exportMetadata"], ["cluster"])
