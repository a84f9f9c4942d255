"""The rule that decides whether something is lost for good or only unavailable for now.

When a topic, a queue or a message is missing, a query can wait for it, fail, or skip it. The choice
matters: a reader that mistakes the restart of a broker for a deletion skips messages that still
exist, and Spark then commits the new offsets. The answer of a name server does not settle the
question, because a name server forgets the topics of a broker as soon as the broker stops.
Therefore all readers and the sink share one rule. Something counts as lost only if the server that
is responsible for it confirms the loss:

- A topic is lost if its broker is registered at a name server and itself answers that it does not
  have the topic. Two looks, ``deletionCheckMs`` apart, must show this.
- A queue is lost if its broker is registered with fewer queues of the topic, or if an option names
  its broker as removed for good. Again, two looks must show this.
- An offset is lost if the master of the queue reports that the queue begins after the offset or
  ends before it.

Everything else is away: a name server or broker that does not answer, a broker that is not
registered, a topic that is unknown to the name servers for this reason, and messages that a slave
has not yet received from its master. Readers and the sink wait for it for up to ``serverWaitMs``.
The option ``failOnDataLoss=false`` permits a reader to skip lost messages, but never messages that
are away.
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
from twistmq.integrations.tables.errors import ShortError
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RemotingError, RequestRefused
from twistmq.protocol.flags import MASTER_ID
from twistmq.protocol.headers import offset as headers

__all__ = [
    "BUSY_CODES",
    "PAUSE_MAX_S",
    "Availability",
    "Bounds",
    "Deletions",
    "Look",
    "Patience",
    "StillAway",
    "Verdict",
    "is_denied",
    "is_passing",
    "reach_name_server",
]

_LOG: Final = logging.getLogger("twistmq.tables")
#: The limits of the pauses between tries. The first pause is ``fetchOffset.retryIntervalMs``, and
#: each further pause is twice as long. A pause of zero would keep a core busy.
_PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
#: A broker that refuses a request with one of these codes may accept it a moment later.
BUSY_CODES: Final = frozenset({
    ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY})
#: A part of the name of the exceptions of access control, which brokers include in their remarks.
_ACCESS: Final = ".acl.common.AclException"
_PULL_CODES: Final = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND,
                      ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)


class StillAway(ShortError, RuntimeError):
    """A server that a query needs is away and did not come back in time; the text names it."""


class Availability(Enum):
    """The state of a topic or queue."""

    THERE = "there"
    AWAY = "away"
    #: It seems to be gone, but a second look must confirm this.
    CHECKING = "checking"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a topic or queue, and the reason for this verdict."""

    standing: Availability
    reason: str = ""
    #: The broker that is not registered; "" if that is not the reason.
    broker: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a queue on its master: the first offset, and the offset after the last one."""

    begin: int
    end: int


def is_passing(error: Exception) -> bool:
    """Whether an error means that a server is away, and not that it refuses a request for good."""
    if isinstance(error, SendFailed):
        last = error.attempts[-1].error if error.attempts else None
        return isinstance(last, Exception) and is_passing(last)
    return isinstance(error, RemotingError | NoRoute) or (
        isinstance(error, RequestRefused) and error.response_code in BUSY_CODES)


def is_denied(error: Exception) -> bool:
    """Whether a broker refuses a request because of its account, or because it names no account.

    Apache's brokers before 5.3 use code 1 for this. Code 16 can also mean that a topic or broker
    does not permit any client to read or to write.
    """
    return isinstance(error, RequestRefused) and (
        _ACCESS in str(error) or (error.response_code == ResponseCode.NO_PERMISSION
                                  and "forbidden" not in str(error)))


class Patience:
    """Limits the wait for something that is away: pauses between tries, one warning, and an end.

    The wait uses no CPU time between the tries.

    :param wait_s: the longest time that a wait may take.
    :param pause_s: the first pause.
    """

    def __init__(self, wait_s: float, pause_s: float) -> None:
        self._wait_s = wait_s
        self._first_pause_s = max(pause_s, _PAUSE_MIN_S)
        self._pause_s = self._first_pause_s
        #: The time at which this wait began; None if there is no wait.
        self._since: float | None = None
        self._has_warned = False
        #: The number of tries that have failed since then.
        self.failures = 0

    @property
    def waited_s(self) -> float:
        """The duration of this wait until now."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def pause(self, what: str, *, least_tries: int = 0, is_checking: bool = False,
              is_away: bool = True, pause_max_s: float = PAUSE_MAX_S) -> bool:
        """Wait before the next try.

        :param what: a text that describes the reason for the wait.
        :param least_tries: the number of further tries that are made however long they take.
        :param is_away: whether something is away; otherwise only ``least_tries`` counts.
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
        remaining_s = self._wait_s - self.waited_s if is_away else 0.0
        if remaining_s <= 0 and self.failures > least_tries and not is_checking:
            return False
        time.sleep(max(min(self._pause_s, remaining_s), _PAUSE_MIN_S))
        self._pause_s = min(self._pause_s * 2, pause_max_s)
        return True

    def require(self, what: str, *, is_checking: bool = False, broker: str = "") -> None:
        """Wait before the next try.

        :param broker: the broker that is not registered, if that is the reason for the wait.
        :raises StillAway: when the time is over.
        """
        if not self.pause(what, is_checking=is_checking):
            hint = (f"; if the broker was removed for good, the option removedBrokers={broker} "
                    "says so" if broker else "")
            raise StillAway(f"{what}. The query waited for {self.waited_s:.1f} s (option "
                            f"serverWaitMs){hint}")

    def end(self) -> None:
        """End the wait, because the missing thing has returned."""
        if self._has_warned:
            _LOG.warning("the wait is over after %.1f s", self.waited_s)
        self._since = None
        self._has_warned = False
        self.failures = 0
        self._pause_s = self._first_pause_s


def reach_name_server(client: Client) -> None:
    """Send a request to a name server; :raises RemotingError: when the last try fails."""
    patience = Patience(0.0, client._options.retry_wait_ms / 1000)
    while True:
        try:
            client.cluster_info()
            return
        except RemotingError as error:
            if not patience.pause(str(error), least_tries=client._options.retries):
                raise


class Look:
    """One look at a cluster: the current answers of name servers and brokers, each asked once.

    The methods raise ``RemotingError`` when no name server answers.

    :param group: the group in the pull request that asks a broker about a topic.
    :param removed: the names of brokers that were removed for good, from the option.
    """

    def __init__(self, client: Client, group: str, removed: Collection[str] = ()) -> None:
        self._client = client
        self._group = group
        self._removed = removed
        self._queues: dict[str, list[MessageQueue]] = {}
        self._brokers: dict[str, dict[int, str]] | None = None

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic according to the name servers; empty for an unknown one."""
        if topic not in self._queues:
            try:
                self._queues[topic] = self._client.read_queues(topic, again=True)
            except RequestRefused as error:
                if error.response_code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                self._queues[topic] = []
        return self._queues[topic]

    def registered(self) -> dict[str, dict[int, str]]:
        """Return the addresses of the registered brokers by name and id."""
        if self._brokers is None:
            table = self._client.cluster_info().broker_addr_table
            self._brokers = {name: dict(data.broker_addrs) for name, data in table.items()
                             if data.broker_addrs}
        return self._brokers

    def master(self, name: str) -> str | None:
        """Return the address of the master of a broker, or None if it is not registered."""
        return self.registered().get(name, {}).get(MASTER_ID)

    def standing(self, queue: MessageQueue, *, is_refused: bool = False) -> Verdict:
        """Determine the state of a queue; the result is GONE after one look.

        :param is_refused: whether a broker has answered that it does not have the topic. The broker
            is then asked even if the name servers know the queue.
        """
        queues = self.queues(queue.topic)
        if queue in queues and not is_refused:
            return Verdict(Availability.THERE)
        # A queue of a static topic belongs to the broker that the last known route gives for it.
        name = self._client._core.routes.broker_of(queue)
        master = self.master(name)
        if master is None:
            if name in self._removed and name not in self.registered():
                return Verdict(Availability.GONE,
                               f"broker {name} was removed (option removedBrokers)")
            others = ", ".join(sorted(self.registered().keys() - {name}))
            return Verdict(Availability.AWAY,
                           f"broker {name} has no master that is registered at a name server"
                           + (f", where {others} are" if others else ""), name)
        count = sum(one.broker_name == queue.broker_name for one in queues)
        if count and not is_refused:
            return Verdict(Availability.GONE, f"the queue is gone, broker {queue.broker_name} has "
                           f"only {count} of the topic")
        return self._at(master, queue)

    def topic_standing(self, topic: str) -> Verdict:
        """Determine the state of a topic without a known broker; the result is GONE
        after one look.
        """
        if self.queues(topic):
            return Verdict(Availability.THERE)
        if not self.registered():
            return Verdict(Availability.AWAY, "no broker is registered at a name server")
        # A broker may have registered between the two requests.
        del self._queues[topic]
        if self.queues(topic):
            return Verdict(Availability.THERE)
        return Verdict(Availability.GONE, "there is no such topic at the brokers that are "
                       f"registered ({', '.join(sorted(self.registered()))})")

    def bounds(self, queue: MessageQueue) -> Bounds | None:
        """Ask the master of a queue for the bounds of the queue; None without a master.

        :raises RemotingError: when the master does not answer.
        """
        name = self._client._core.routes.broker_of(queue)
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
        """Ask a broker about a topic that the name servers do not know on this broker."""
        name = self._client._core.routes.broker_of(queue)
        try:
            self._client.ask(address, RequestCode.PULL_MESSAGE, pull_header(
                queue, 0, self._group, max_count=1), accepted_codes=_PULL_CODES)
        except RequestRefused as error:
            if error.response_code == ResponseCode.TOPIC_NOT_EXIST:
                return Verdict(Availability.GONE,
                               f"the topic is gone, broker {name} has no such topic")
            return Verdict(Availability.AWAY, str(error))
        except RemotingError as error:
            return Verdict(Availability.AWAY, f"broker {name} does not answer: {error}")
        return Verdict(Availability.AWAY, f"broker {name} has the topic, which it or a name server "
                       "did not know a moment ago")


class Deletions:
    """Remembers topics and queues that seem to be gone until a second look confirms it.

    :param apart_s: the shortest time between the first and the second look.
    """

    def __init__(self, apart_s: float) -> None:
        self._apart_s = apart_s
        self._since: dict[object, float] = {}

    def judge(self, what: object, seen: Verdict) -> Verdict:
        """Return the verdict on a topic or queue after another look at it."""
        if seen.standing is not Availability.GONE:
            self._since.pop(what, None)
            return seen
        since = self._since.setdefault(what, time.monotonic())
        if time.monotonic() - since < self._apart_s:
            return Verdict(Availability.CHECKING, f"{seen.reason}; a second look follows in "
                           f"{self._apart_s:g} s")
        return seen
