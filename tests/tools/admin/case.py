"""The common parts of tests of ``twistmq admin``: a broker, and commands in this process."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.in_process_broker import RunningBroker, running_broker
from twistmq.client.blocking.connection import Connection
from twistmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    ProducerData,
    SubscriptionData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.tools.command_line import main

__all__ = ["AdminCase", "Member", "call"]


def call(*arguments: str) -> tuple[int, str, str]:
    """Run ``twistmq admin`` in this process: status, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["admin", *arguments])
    return status, out.getvalue(), err.getvalue()


class Member:
    """A client that is a producer and a consumer for a broker, on its own thread.

    :param group: of its consumer; ``group-producer`` is its producer's.
    :param topic: what it subscribes to.
    """

    def __init__(self, address: str, group: str, topic: str, client: str = "10.0.0.1@7") -> None:
        self.client = client
        self._queue = MessageQueue(topic, "", 0)
        self._connection = Connection(address)
        subscription = SubscriptionData(topic)
        heartbeat = HeartbeatData(client, (ProducerData(f"{group}-producer"),), (ConsumerData(
            group, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (subscription,)),))
        reply = self._connection.request(RequestCode.HEART_BEAT, None, heartbeat.encode_standard())
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        self._info = ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMEORDERLY": "false",
                        "PROP_CONSUMER_START_TIMESTAMP": "1700000000000"},
            subscription_set=(subscription,), mq_table={self._queue: {"locked": False}},
            status_table={topic: {"consumeOKTPS": 1.5}})

    def tell(self, *answers: tuple[int, bytes]) -> threading.Thread:
        """Send a heartbeat, then answer requests of these codes, in order."""
        def run() -> None:
            for code, body in (
                    (RequestCode.GET_CONSUMER_RUNNING_INFO, self._info.encode()), *answers):
                request = self._connection.wait_for_request(code)
                self._connection.answer(request, ResponseCode.SUCCESS, body)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Leave the groups."""
        self._connection.close()


class AdminCase(SynchronousTestCase):
    """A name server and a broker, started for each test."""

    settings: Mapping[str, str] = {"brokerIP1": "127.0.0.1", "brokerName": "broker-a"}

    def setUp(self) -> None:
        context = running_broker(self.settings)
        self.running: RunningBroker = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.broker = self.running.broker_address

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command against the broker."""
        return call(*arguments, "-n", self.running.namesrv_address)

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the rows of a command that must succeed."""
        status, out, err = self.call(*arguments, "--output", "json")
        self.assertEqual((status, err), (0, ""), msg=arguments)
        rows: list[dict[str, Any]] = json.loads(out)
        return rows

    def refusal(self, *arguments: str) -> str:
        """Return the line of a command that must fail."""
        status, out, err = self.call(*arguments)
        self.assertEqual((status, out), (1, ""), msg=arguments)
        self.assertEqual(err.count("\n"), 1, msg=err)
        self.assertTrue(err.startswith("twistmq: "), msg=err)
        return err

    def member(self, group: str, topic: str) -> Member:
        """Return a client of a group, which is closed after the test."""
        member = Member(self.broker, group, topic)
        self.addCleanup(member.close)
        return member
