"""A well-behaved client that works all the time, whatever else happens to the servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from twistmq.broker.testing.raw_client import RawClient, pull_header, records_of
from twistmq.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    TopicRouteData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.namesrv import GetRouteInfoRequestHeader
from twistmq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

__all__ = ["GoodClient", "Tally"]

#: Nothing here may take as long. A Java client gives up after 3 s; the tests share their cores.
TIMEOUT_SECONDS = 10.0
_HOLD_MS = 10_000
_Answer = TypeVar("_Answer")


@dataclass
class Tally:
    """The requests of the client and their results."""

    operations: int = 0
    failures: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0
    #: The most processor time that the servers took from a request to its answer, seconds: a wait
    #: that does not count how many other processes want a core.
    slowest_work_seconds: float = 0.0


class GoodClient:
    """Sends messages, receives each by long polling, and does other work of
    clients, on a thread.

    :param broker: address of the broker.
    :param namesrv: address of the name server.
    :param pause_seconds: between two rounds, so that the machine has time for others. It is a
        tenth of that while somebody waits for rounds.
    :param servers_pid: their process; None: their processor time is not looked at.
    """

    def __init__(
        self, broker: str, namesrv: str, topic: str = "good_topic", pause_seconds: float = 0.03,
        servers_pid: int | None = None,
    ) -> None:
        self.tally = Tally()
        self._topic = topic
        self._group = f"{topic}_group"
        self._pause_seconds = pause_seconds
        # As clock_getcpuclockid(3) makes it.
        self._work_clock = None if servers_pid is None else ~servers_pid << 3 | 2
        self._producer = RawClient(broker, TIMEOUT_SECONDS)
        self._consumer = RawClient(broker, TIMEOUT_SECONDS + _HOLD_MS / 1000)
        self._namesrv = RawClient(namesrv, TIMEOUT_SECONDS)
        self._offset = self._producer.max_offset(topic)
        self._ended = threading.Event()
        self._is_awaited = threading.Event()
        self._thread = threading.Thread(target=self._run, name="good client", daemon=True)

    def start(self) -> GoodClient:
        self._round(0)
        self._thread.start()
        return self

    def stop(self) -> Tally:
        """Stop after the current round; :returns: the sums over all rounds."""
        self._ended.set()
        self._is_awaited.set()
        self._thread.join()
        for client in (self._producer, self._consumer, self._namesrv):
            client.close()
        return self.tally

    def wait_for_rounds(self, count: int) -> None:
        """Wait until it has done so many more operations, or failed at one."""
        wanted = self.tally.operations + count
        self._is_awaited.set()
        while self.tally.operations < wanted and not self.tally.failures:
            time.sleep(0.01)
        self._is_awaited.clear()

    def _run(self) -> None:
        number = 1
        while not self._ended.wait(self._pause_seconds / 10):
            if not self._is_awaited.is_set():
                self._is_awaited.wait(self._pause_seconds * 0.9)
            begin = time.monotonic()
            try:
                self._round(number)
            except Exception as error:
                self.tally.failures.append(f"round {number}: {error!r}")
                return
            self.tally.slowest_seconds = max(self.tally.slowest_seconds,
                                             time.monotonic() - begin)
            number += 1

    def _round(self, number: int) -> None:
        """Send and receive one message, and more from time to time."""
        body = b"message %d" % number
        pull = None
        if self._offset:
            # Before the first message there is no subscription group and no topic.
            pull = self._begin_pull()
        sent = self._watched(lambda: self._producer.send(self._topic, body))
        self.tally.operations += 1
        _check(sent.queue_offset == self._offset, f"offset {sent.queue_offset}, not {self._offset}")
        begun = self._begin_pull() if pull is None else pull
        reply = self._watched(lambda: self._consumer.reply(begun))
        _check(reply.code == ResponseCode.SUCCESS, f"pull: {reply.code} {reply.remark}")
        bodies = [message.body for message in records_of(reply.body)]
        _check(bodies == [body], f"pulled {bodies}")
        self.tally.operations += 1
        self._offset += 1
        if number % 16 == 0:
            self._look_around()

    def _watched(self, ask: Callable[[], _Answer]) -> _Answer:
        """Ask, and note how long the servers worked meanwhile."""
        if self._work_clock is None:
            return ask()
        begin = time.clock_gettime(self._work_clock)
        answer = ask()
        self.tally.slowest_work_seconds = max(
            self.tally.slowest_work_seconds, time.clock_gettime(self._work_clock) - begin)
        return answer

    def _begin_pull(self) -> int:
        return self._consumer.begin(RequestCode.PULL_MESSAGE, pull_header(
            self._topic, self._offset, group=self._group, hold_ms=_HOLD_MS))

    def _look_around(self) -> None:
        """Request a heartbeat, an offset and a route."""
        heartbeat = HeartbeatData(
            f"good@{self._topic}", (ProducerData("good_producers"),),
            (ConsumerData(self._group, subscription_data_set=(SubscriptionData(self._topic),)),))
        _succeeded(self._watched(lambda: self._consumer.request(
            RequestCode.HEART_BEAT, None, heartbeat.encode_standard())), "heartbeat")
        _succeeded(self._watched(lambda: self._consumer.request(
            RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
                consumer_group=self._group, topic=self._topic, queue_id=0,
                commit_offset=self._offset))), "commit")
        known = _succeeded(self._watched(lambda: self._consumer.request(
            RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(
                consumer_group=self._group, topic=self._topic, queue_id=0))), "offset")
        offset = known.header(QueryConsumerOffsetResponseHeader).offset
        _check(offset == self._offset, f"committed offset {offset}, not {self._offset}")
        route = _succeeded(self._watched(lambda: self._namesrv.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader(topic=self._topic))), "route")
        _check(bool(TopicRouteData.decode(route.body).queue_datas), "the route has no queue")
        self.tally.operations += 4


def _succeeded(reply: RemotingCommand, what: str) -> RemotingCommand:
    _check(reply.code == ResponseCode.SUCCESS, f"{what}: {reply.code} {reply.remark}")
    return reply


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
