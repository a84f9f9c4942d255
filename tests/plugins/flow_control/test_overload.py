"""A broker that gets more requests than it can serve, over sockets."""

from __future__ import annotations

import time
from collections import Counter

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import hookimpl
from twistmq.broker.testing import running_broker
from twistmq.broker.testing.raw_client import RawClient, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import encode_request

COUNT = 6000


class Slow:
    """A plugin that makes each append take 20 ms."""

    @hookimpl
    def before_append(self) -> None:
        time.sleep(0.020)


class OverloadTests(SynchronousTestCase):
    """A client sends many messages without waiting for responses."""

    def flood(self, client: RawClient) -> list[tuple[int, str]]:
        """Send many at once; :returns: code and remark of each answer."""
        opaques = range(10_000, 10_000 + COUNT)
        client.begin_frames(b"".join(
            encode_request(RequestCode.SEND_MESSAGE_V2, opaque, send_header("T", 1), b"x" * 100)
            for opaque in opaques), opaques)
        answers = [client.reply(opaque) for opaque in opaques]
        return [(answer.code, answer.remark or "") for answer in answers]

    def test_refused_and_over(self) -> None:
        """Every send gets a response, often SYSTEM_BUSY; afterwards the broker works as before.

        What was accepted is there, nothing else is, and another client is served all the time.
        """
        with running_broker({"sendThreadPoolQueueCapacity": "3000",
                             "waitTimeMillsInSendQueue": "100"},
                            plugins=[("slow", Slow())]) as broker, \
                broker.client() as client, broker.client() as other:
            client.send("T", b"before")
            answers = self.flood(client)
            words = Counter(remark.partition("]")[0].lstrip("[") for _, remark in answers)
            accepted = words.pop("")
            self.assertEqual(Counter(code for code, _ in answers), {
                ResponseCode.SUCCESS: accepted, ResponseCode.SYSTEM_BUSY: COUNT - accepted})
            self.assertEqual(set(words), {"OVERLOAD", "TIMEOUT_CLEAN_QUEUE"}, msg=str(words))
            client.send("T", b"after")
            self.assertEqual(client.max_offset("T"), accepted + 2)
            info = broker.call(lambda: broker.kernel.hooks.runtime_info())
            self.assertEqual(int(info["flowControl_OVERLOAD"]), words["OVERLOAD"])
            self.assertEqual(info["sendThreadPoolQueueSize"], "0")
            other.send("T", b"other")

    def test_without_the_plugin_nothing_is_refused(self) -> None:
        """Without the plugin no request is refused, and a client that sends too much waits."""
        with running_broker({"plugins.disabled": "flow_control"},
                            plugins=[("slow", Slow())]) as broker, broker.client() as client:
            client.send("T", b"before")
            self.assertEqual({code for code, _ in self.flood(client)}, {ResponseCode.SUCCESS})
