"""Apache's 5.x clients through Apache's proxy, with our name server and broker.

The servers, the proxy and both clients' rounds are started once, by the first test. Each test
then looks at one part of a round.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.interop import proxy
from tests.interop.kept import at_once, kept
from tests.interop.peer import Peer
from tests.interop.proxy import BROKER_SETTINGS, Proxy
from tests.interop.servers import Servers, free_port
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import pull_header
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.record import records_of


class Rounds:
    """Both rounds, which begin with the construction.

    :param stack: the end of it ends the proxy, after the rounds.
    :param namesrv: the name server's address.
    :param broker: the broker's address.
    """

    def __init__(self, folder: Path, stack: ExitStack, namesrv: str, broker: str) -> None:
        proxy.make_topics(broker)
        self.broker = broker
        self.proxy = Proxy(folder / "proxy", namesrv, free_port(), free_port())
        stack.callback(self.proxy.stop)
        self.proxy.start()
        endpoints = f"127.0.0.1:{self.proxy.port}"
        self._outputs = at_once(stack, {
            "java": partial(proxy.java_client_round, endpoints),
            "python": partial(proxy.python_client_round, endpoints)})

    def output(self, client: str) -> str:
        """The output of a client's round, once it is over; :raises RoundError: when it failed."""
        return self._outputs[client].result()


def ours(folder: Path, stack: ExitStack) -> tuple[Servers, Rounds]:
    """Our servers, and both rounds behind the proxy."""
    settings = [f"{name}={value}" for name, value in BROKER_SETTINGS.items()]
    servers = Servers(folder / "data", *settings, "log.level=debug", folder=folder)
    stack.callback(servers.stop)
    servers.start()
    return servers, Rounds(folder, stack, servers.namesrv, f"127.0.0.1:{servers.broker_port}")


class RoundCase(SynchronousTestCase):
    """A test that reads the results of the rounds."""

    client = ""

    def setUp(self) -> None:
        reason = proxy.programs_missing()
        if reason:
            raise SkipTest(reason)
        self.servers, self.rounds = kept(self, ours)

    def holds(self, part: str) -> None:
        """Fail unless a part of this client's round ended well."""
        output = self.rounds.output(self.client)
        self.assertRegex(output, rf"(?m)^ok {part} ")


class JavaClientTests(RoundCase):
    """The Java client 5.1.0."""

    client = "java"

    def test_messages_arrive_as_they_were_sent(self) -> None:
        """Bodies, ids, tags, keys and properties of synchronous and asynchronous sends."""
        self.holds("sends")

    def test_large_bodies_arrive(self) -> None:
        """Bodies have from one byte to nearly four MiB."""
        self.holds("large")

    def test_a_missing_topic_and_other_kinds_of_messages_are_refused(self) -> None:
        """The errors are those that 5.x clients expect."""
        self.holds("refusals")

    def test_a_push_consumer_keeps_the_order_of_message_groups(self) -> None:
        """Three message groups; one message of each fails once."""
        self.holds("fifo")

    def test_a_simple_consumer_gets_nothing_behind_an_open_message(self) -> None:
        """The second message of a group follows the acknowledgement of the first."""
        self.holds("fifo_simple")

    def test_a_delayed_message_comes_at_its_time(self) -> None:
        """The message keeps its delivery time."""
        self.holds("delay")

    def test_a_recalled_message_does_not_come(self) -> None:
        """Another of the same time does, and cannot be recalled then."""
        self.holds("recall")

    def test_transactions_are_committed_rolled_back_and_checked(self) -> None:
        """Its producer decides, or its checker if it left them open."""
        self.holds("transactions")

    def test_an_unacknowledged_message_comes_again(self) -> None:
        """After its time, or the time it was changed to; an expired receipt is refused."""
        self.holds("invisible")

    def test_many_messages_are_received_at_a_time(self) -> None:
        """64 messages, 16 at most at a time, each given once."""
        self.holds("batches")

    def test_a_message_is_dead_after_its_last_attempt(self) -> None:
        """The group gets it twice, and then it is a dead letter."""
        self.holds("dead_letters")
        with RawClient(self.rounds.broker) as client:
            reply = client.request(RequestCode.PULL_MESSAGE, pull_header("%DLQ%ProxyDead"))
        self.assertEqual([record.body for record in records_of(reply.body)], [b"dead"])

    def test_push_consumers_share_messages_and_get_failed_ones_again(self) -> None:
        """Two members of one group are used."""
        self.holds("push")

    def test_tags_select_messages(self) -> None:
        """Two of three tags are selected, beside a group without a selection."""
        self.holds("tags")

    def test_an_sql_expression_selects_messages(self) -> None:
        """The expression uses properties and the tag."""
        self.holds("sql")


class PythonClientTests(RoundCase):
    """The Python client 5.1.2."""

    client = "python"

    def test_messages_arrive_as_they_were_sent(self) -> None:
        """Bodies, ids, tags, keys and properties of synchronous and asynchronous sends."""
        self.holds("sends")

    def test_an_unacknowledged_message_comes_again(self) -> None:
        """After its time, or the time it was changed to."""
        self.holds("invisible")

    def test_a_push_consumer_gets_failed_messages_again(self) -> None:
        """All messages are delivered, and one of them twice."""
        self.holds("push")

    def test_a_push_consumer_keeps_the_order_of_message_groups(self) -> None:
        """Of two message groups, one message each fails once."""
        self.holds("fifo")

    def test_a_delayed_message_comes_and_a_recalled_one_does_not(self) -> None:
        """The two messages have one delivery time."""
        self.holds("delay")

    def test_transactions_are_committed_rolled_back_and_checked(self) -> None:
        """The producer decides, or its checker if it left one open."""
        self.holds("transactions")

    def test_tags_select_messages(self) -> None:
        """A consumer that subscribed to one of two tags gets only the messages with that tag."""
        self.holds("tags")


class BrokerTests(RoundCase):
    """The state of our servers after the rounds."""

    def test_the_proxy_asks_for_nothing_that_is_not_served(self) -> None:
        """No request of the proxy is refused because of its code, and none causes an error."""
        for client in ("java", "python"):
            self.rounds.output(client)
        log = self.servers.log()
        self.assertIn("request ", log)
        self.assertEqual(re.findall(r"request type \d+ not supported.*", log), [])
        self.assertNotIn("Traceback", log)


class ApachesBrokerTests(SynchronousTestCase):
    """The same rounds with Apache's broker behind the proxy."""

    def long_apaches(self) -> None:
        """Apache's broker passes the same rounds."""
        folder = Path(tempfile.mkdtemp(prefix="twistmq-proxy-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        stack = ExitStack()
        self.addCleanup(stack.close)
        peer = Peer(folder / "peer", "5.3.3", free_port(), free_port(), "512m",
                    settings=dict(BROKER_SETTINGS))
        stack.callback(peer.stop, kill=True)
        peer.start()
        rounds = Rounds(folder, stack, peer.namesrv_address, f"127.0.0.1:{peer.broker_port}")
        for client in ("java", "python"):
            output = rounds.output(client)
            self.assertNotRegex(output, r"(?m)^failed ")
            self.assertRegex(output, r"ok \d{2,} checks")
