"""The rule "gone for good, or away for now", which all readers and the sink share.

A topic, a queue or an offset counts as lost only when a server that must know it says so:

- A topic is lost when its broker is registered at a name server and answers itself that it has no
  such topic. This must be seen twice, ``deletionCheckMs`` apart.
- A queue is lost when its broker is registered with fewer queues of the topic, or an operator says
  that its broker was removed for good, seen twice as well.
- An offset is lost when the queue's master says that its queue begins after it or ends before it.

Everything else is away: a name server or broker that does not answer, a broker that is not
registered, a topic that no name server names because of that, and a slave that has less than its
master. Readers and the sink wait for it, ``serverWaitMs`` at most. ``failOnDataLoss=false`` permits
skipping what is lost, and never what is away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from twistmq.client.base.errors import NoRoute, SendFailed
from twistmq.client.blocking.client import Client
from twistmq.client.core.consumer.pull_request import pull_header
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RemotingError, RequestRefused
from twistmq.protocol.flags import MASTER_ID
from twistmq.protocol.headers import offset as headers
from twistmq.spark_bridge.errors import ShortError

__all__ = ["BUSY_CODES", "PAUSE_MAX_S", "Bounds", "Deletions", "Look", "Patience", "Standing",
           "StillAway", "Verdict", "is_denied", "is_passing", "reach_name_server"]

_LOG: Final = logging.getLogger("twistmq.spark_bridge")
#: Pauses between tries: they begin with ``fetchOffset.retryIntervalMs``, and double. A pause of
#: zero would keep a core busy.
_PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
#: A broker that refuses a request with one of these may serve it in a moment.
BUSY_CODES: Final = frozenset({
    ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY})
#: A part of the name of the exceptions by which access control refuses, as remarks have it.
_ACCESS: Final = ".acl.common.AclException"
_PULL_CODES: Final = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND,
                      ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)


class StillAway(ShortError, RuntimeError):
    """A server that a query needs is away and did not come back in time; the text names it."""


class Standing(Enum):
    """The state of a topic or queue."""

    THERE = "there"
    AWAY = "away"
    #: It seems to be gone, and has to be seen so once more.
    CHECKING = "checking"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a topic or queue, and who says so."""

    standing: Standing
    reason: str = ""
    #: The broker that is not registered; "" when that is not why.
    broker: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of a queue, as its master says: of the first message, and after the last one."""

    begin: int
    end: int


def is_passing(error: Exception) -> bool:
    """Whether an error says that a server is away now, rather than that it refuses."""
    if isinstance(error, SendFailed):
        last = error.attempts[-1].error if error.attempts else None
        return isinstance(last, Exception) and is_passing(last)
    return isinstance(error, RemotingError | NoRoute) or (
        isinstance(error, RequestRefused) and error.response_code in BUSY_CODES)


def is_denied(error: Exception) -> bool:
    """Whether a broker refuses a request because of its account, or because it names no account.

    Apache's brokers before 5.3 answer so with code 1. Code 16 also says that a topic or broker
    permits nobody to read or to write.
    """
    return isinstance(error, RequestRefused) and (
        _ACCESS in str(error) or (error.response_code == ResponseCode.NO_PERMISSION
                                  and "forbidden" not in str(error)))


class Patience:
    """The waiting for what is away: pauses between tries, one warning, and an end.

    It uses no CPU between the tries.

    :param wait_s: how long a wait may take.
    :param pause_s: the first pause.
    """

    def __init__(self, wait_s: float, pause_s: float) -> None:
        self._wait_s = wait_s
        self._first_pause_s = max(pause_s, _PAUSE_MIN_S)
        self._pause_s = self._first_pause_s
        #: When this wait began; None while nothing is waited for.
        self._since: float | None = None
        self._has_warned = False
        #: Tries that failed since then.
        self.failures = 0

    @property
    def waited_s(self) -> float:
        """How long this wait has taken so far."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def pause(self, what: str, *, least_tries: int = 0, is_checking: bool = False,
              is_away: bool = True, pause_max_s: float = PAUSE_MAX_S) -> bool:
        """Wait before the next try.

        :param what: what is waited for, and why.
        :param least_tries: how many further tries there are however long they take.
        :param is_away: whether something is away; other failures have no more tries than these.
        :param is_checking: whether the wait is for a second look, which always takes place.
        :param pause_max_s: the longest pause.
        :returns: False, without a pause, when the time is over.
        """
        self.failures += 1
        if self._since is None:
            self._since = time.monotonic()
        if is_away and self._wait_s and not self._has_warned:
            self._has_warned = True
            _LOG.warning("waiting for up to %g s: %s", self._wait_s, " ".join(what.split()))
        left = self._wait_s - self.waited_s if is_away else 0.0
        if left <= 0 and self.failures > least_tries and not is_checking:
            return False
        time.sleep(max(min(self._pause_s, left), _PAUSE_MIN_S))
        self._pause_s = min(self._pause_s * 2, pause_max_s)
        return True

    def require(self, what: str, *, is_checking: bool = False, broker: str = "") -> None:
        """Wait before the next try.

        :param broker: the broker that is not registered, if that is why.
        :raises StillAway: when the time is over.
        """
        if not self.pause(what, is_checking=is_checking):
            hint = (f"; if the broker was removed for good, the option removedBrokers={broker} "
                    "says so" if broker else "")
            raise StillAway(f"{what}. It was waited for {self.waited_s:.1f} s (option "
                            f"serverWaitMs){hint}")

    def over(self) -> None:
        """Note that what was waited for is there."""
        if self._has_warned:
            _LOG.warning("the wait is over after %.1f s", self.waited_s)
        self._since = None
        self._has_warned = False
        self.failures = 0
        self._pause_s = self._first_pause_s


def reach_name_server(client: Client) -> None:
    """Ask a name server something; :raises RemotingError: when the last try fails."""
    patience = Patience(0.0, client.options.retry_wait_ms / 1000)
    while True:
        try:
            client.cluster_info()
            return
        except RemotingError as error:
            if not patience.pause(str(error), least_tries=client.options.retries):
                raise


class Look:
    """One look at a cluster: what name servers and brokers say now, each asked once.

    Its methods raise ``RemotingError`` when no name server answers.

    :param group: the group that the broker's own answer is asked for with.
    :param removed: brokers that an operator says were removed for good, by name.
    """

    def __init__(self, client: Client, group: str, removed: Collection[str] = ()) -> None:
        self._client = client
        self._group = group
        self._removed = removed
        self._queues: dict[str, list[MessageQueue]] = {}
        self._brokers: dict[str, dict[int, str]] | None = None

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that name servers know of a topic; none when they do not know it."""
        if topic not in self._queues:
            try:
                self._queues[topic] = self._client.read_queues(topic, again=True)
            except RequestRefused as error:
                if error.response_code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                self._queues[topic] = []
        return self._queues[topic]

    def registered(self) -> dict[str, dict[int, str]]:
        """The addresses of the brokers that are registered, by name and id."""
        if self._brokers is None:
            table = self._client.cluster_info().broker_addr_table
            self._brokers = {name: dict(data.broker_addrs) for name, data in table.items()
                             if data.broker_addrs}
        return self._brokers

    def master(self, name: str) -> str | None:
        """The address of a broker's master, if it is registered."""
        return self.registered().get(name, {}).get(MASTER_ID)

    def standing(self, queue: MessageQueue, *, is_refused: bool = False) -> Verdict:
        """The state of a queue; GONE after one look.

        :param is_refused: whether a broker said that it has no such topic, so that it is asked
            whatever name servers say.
        """
        queues = self.queues(queue.topic)
        if queue in queues and not is_refused:
            return Verdict(Standing.THERE)
        # A queue of a static topic has the broker that had it when its route was seen last.
        name = self._client.core.routes.broker_of(queue)
        master = self.master(name)
        if master is None:
            if name in self._removed and name not in self.registered():
                return Verdict(Standing.GONE, f"broker {name} was removed (option removedBrokers)")
            return Verdict(Standing.AWAY, f"broker {name} has no master that is registered at a "
                           "name server", name)
        count = sum(one.broker_name == queue.broker_name for one in queues)
        if count and not is_refused:
            return Verdict(Standing.GONE, f"the queue is gone, broker {queue.broker_name} has only "
                           f"{count} of the topic")
        return self._at(master, queue)

    def topic_standing(self, topic: str) -> Verdict:
        """The state of a topic of which no broker is known; GONE after one look."""
        if self.queues(topic):
            return Verdict(Standing.THERE)
        if not self.registered():
            return Verdict(Standing.AWAY, "no broker is registered at a name server")
        # A broker may have come between the two questions.
        del self._queues[topic]
        if self.queues(topic):
            return Verdict(Standing.THERE)
        return Verdict(Standing.GONE, "there is no such topic at the brokers that are registered "
                       f"({', '.join(sorted(self.registered()))})")

    def bounds(self, queue: MessageQueue) -> Bounds | None:
        """The offsets of a queue, as its master says; None without a master.

        :raises RemotingError: when the master does not answer.
        """
        name = self._client.core.routes.broker_of(queue)
        master = self.master(name)
        if master is None:
            return None
        ask = self._client.ask
        begin = ask(master, RequestCode.GET_MIN_OFFSET, headers.GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id))
        end = ask(master, RequestCode.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id))
        return Bounds(begin.header(headers.GetMinOffsetResponseHeader).offset,
                      end.header(headers.GetMaxOffsetResponseHeader).offset)

    def _at(self, address: str, queue: MessageQueue) -> Verdict:
        """The state of a topic that no name server names for a broker, as the broker says."""
        name = self._client.core.routes.broker_of(queue)
        try:
            self._client.ask(address, RequestCode.PULL_MESSAGE, pull_header(
                queue, 0, self._group, max_count=1), taken=_PULL_CODES)
        except RequestRefused as error:
            if error.response_code == ResponseCode.TOPIC_NOT_EXIST:
                return Verdict(Standing.GONE, f"the topic is gone, broker {name} has no such topic")
            return Verdict(Standing.AWAY, str(error))
        except RemotingError as error:
            return Verdict(Standing.AWAY, f"broker {name} does not answer: {error}")
        return Verdict(Standing.AWAY, f"broker {name} has the topic, which it or a name server did "
                       "not know a moment ago")


class Deletions:
    """The topics and queues that were seen to be gone, and when: they count once seen again.

    :param apart_s: how much later the second look is.
    """

    def __init__(self, apart_s: float) -> None:
        self._apart_s = apart_s
        self._since: dict[object, float] = {}

    def judge(self, what: object, seen: Verdict) -> Verdict:
        """The verdict on a topic or queue after another look at it."""
        if seen.standing is not Standing.GONE:
            self._since.pop(what, None)
            return seen
        since = self._since.setdefault(what, time.monotonic())
        if time.monotonic() - since < self._apart_s:
            return Verdict(Standing.CHECKING, f"{seen.reason}; a second look follows in "
                           f"{self._apart_s:g} s")
        return seen
