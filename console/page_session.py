"""The requests of one page: they share a deadline, and each silent server is named.

A page asks all its brokers at once and shows the answers that have arrived at its deadline. It
never waits for one broker after the other, so a broker that hangs costs each page the same time at
most.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from twistmq.console.sample_table import Key, Sample, SampleTable
from twistmq.console.spent_forms import SpentForms
from twistmq.console.tail_limit import TailLimit
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, RemotingTimeout, RequestRefused
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.printable import one_line
from twistmq.protocol.signature import Credentials
from twistmq.tools.admin.session import Broker, Session

if TYPE_CHECKING:
    from twistmq.console.doctor_runner import Finding

__all__ = ["PAGE_S", "REPORT_S", "Answers", "PageSession", "Unanswered", "is_denial"]

S = TypeVar("S")
T = TypeVar("T")

#: The time in which a page collects its answers, seconds.
PAGE_S: Final = 2.0
#: The additional time for a report that a broker requests from one of its clients, seconds.
REPORT_S: Final = 3.0
#: Requests under way at one time, of all pages of a session.
_THREADS_MAX: Final = 32
#: A reason is shown up to this length, because a server decides it.
_REASON_MAX: Final = 300
#: The exception that a broker names when it refuses a request in ACL 1.0, with SYSTEM_ERROR.
_ACL_1_0: Final = "AclException"


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A server that did not contribute to a page.

    :param server: its name and address.
    :param reason: one line in plain English.
    """

    server: str
    reason: str


class PageSession(Session):
    """A session whose copies belong to one page each; all copies share the connections.

    :param name_servers: "host:port;host:port".
    :param credentials: the account that signs the requests; None: requests are not signed.
    :param tls: the TLS context; None: connections are not encrypted.
    :param timeout_s: the time-out of one request, seconds.
    :param pool: the threads of another session, which its owner closes; None: it starts threads.
    :param doctor: returns the findings about the servers; None: they run on other hosts.
    :ivar denying: the addresses of the brokers that denied a request of the page to the account.
    """

    def __init__(
        self, name_servers: str, *, credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None, timeout_s: float = PAGE_S,
        pool: ThreadPoolExecutor | None = None,
        doctor: Callable[[], list[Finding]] | None = None,
    ) -> None:
        super().__init__(name_servers, timeout_s=timeout_s, connect_timeout_s=timeout_s,
                         credentials=credentials, tls=tls)
        self.tls = tls
        self.unanswered: list[Unanswered] = []
        self.denying: set[str] = set()
        self.doctor = doctor
        #: The forms that were carried out, of all pages.
        self.spent_forms = SpentForms()
        #: The samples for charts, and the limit of tails, of all pages.
        self.sample_table = SampleTable(lambda: int(time.time() * 1000))
        self.tail_limit = TailLimit(time.monotonic)
        self._ends_s = math.inf
        self._is_change = False
        self._has_own_pool = pool is None
        self.pool = pool or ThreadPoolExecutor(_THREADS_MAX, "twistmq-console")

    def for_page(self, page_s: float = PAGE_S, *, is_change: bool = False) -> Self:
        """Return a session that has collected nothing and whose deadline begins now.

        :param is_change: whether a broker that denies a request ends the work, see
            :meth:`for_each`.
        """
        page = copy(self)
        page.failures = []
        page.unanswered = []
        # A broker that was slow once has the whole time of the next page again. With half a second,
        # as in commands, a broker with thousands of groups would stay unanswered from then on.
        page._silent = set()
        page.denying = set()
        page._cluster_info = None
        page._is_change = is_change
        page._ends_s = time.monotonic() + page_s
        return page

    def close(self) -> None:
        """Close the connections of all pages."""
        super().close()
        if self._has_own_pool:
            self.pool.shutdown(wait=False, cancel_futures=True)

    @property
    def remaining_s(self) -> float:
        """The time until the deadline, seconds; at least 0."""
        return max(self._ends_s - time.monotonic(), 0.0)

    def ask(
        self, address: str, code: int, header: CommandHeader | None = None, body: bytes = b"", *,
        accepted_codes: tuple[int, ...] = (ResponseCode.SUCCESS,), timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Ask a server, but no longer than until the deadline.

        :raises RemotingTimeout: when there is no answer at the deadline.
        """
        limit_s = min(self.remaining_s, self.timeout_s if timeout_s is None else timeout_s)
        if limit_s <= 0:
            raise RemotingTimeout(f"{address} did not answer in time")
        return super().ask(address, code, header, body, accepted_codes=accepted_codes,
                           timeout_s=limit_s)

    def for_each(
        self, targets: Iterable[S], one: Callable[[S], object]
    ) -> Iterator[tuple[S, object]]:
        """Call a function for each target; failures are collected and shown at the end.

        A change that a broker has denied does not go on after its other targets. Otherwise a
        topic could be removed from the name servers, which check no account, although all brokers
        keep it.

        :raises RequestRefused: after the last target, when a broker has denied a change.
        """
        denials: list[RequestRefused] = []

        def tried(target: S) -> object:
            try:
                return one(target)
            except RequestRefused as error:
                if is_denial(error):
                    denials.append(error)
                raise

        yield from super().for_each(targets, tried)
        if denials and self._is_change:
            raise denials[0]

    def begin(self, brokers: Iterable[Broker], ask: Callable[[Broker], T]) -> Answers[T]:
        """Begin to ask brokers at the same time.

        A page begins all its questions before it waits for the first answers. Otherwise a broker
        that hangs would leave no time for the following questions to the other brokers.

        :param ask: runs on a thread for each broker.
        """
        return Answers(self, [(broker, self.pool.submit(ask, broker)) for broker in brokers])

    def sample(self, key: Key, *values: float) -> list[Sample]:
        """Add a sample for a chart if all brokers have answered; :returns: all its samples."""
        if self.unanswered:
            return self.sample_table.samples_of(key)
        return self.sample_table.add(key, *values)

    def report(self, broker: Broker, reason: str) -> None:
        """Name a broker that did not contribute to the page."""
        entry = Unanswered(f"{broker.name or 'broker'} ({broker.address})",
                           one_line(reason)[:_REASON_MAX])
        if entry not in self.unanswered:
            self.unanswered.append(entry)


class Answers(Generic[T]):
    """The answers of brokers to one question of a page."""

    def __init__(self, session: PageSession, futures: list[tuple[Broker, Future[T]]]) -> None:
        self._session = session
        self._futures = futures

    def collect(self) -> list[tuple[Broker, T]]:
        """Wait until all brokers have answered, or until the deadline of the page.

        :returns: the answers, in the order of the brokers; ``unanswered`` of the session names the
            brokers without one.
        """
        answers = []
        for broker, future in self._futures:
            try:
                answers.append((broker, future.result(self._session.remaining_s)))
            except TimeoutError:
                future.cancel()
                self._session.report(broker, "no answer in time")
            except BrokerError as error:
                if is_denial(error):
                    self._session.denying.add(broker.address)
                self._session.report(broker, _reason(error))
        return answers


def is_denial(error: BrokerError) -> bool:
    """Return whether a broker has denied a request to an account, in either scheme."""
    return isinstance(error, RequestRefused) and (
        error.response_code == ResponseCode.NO_PERMISSION
        or (error.response_code == ResponseCode.SYSTEM_ERROR and _ACL_1_0 in str(error)))


def _reason(error: BrokerError) -> str:
    if isinstance(error, RemotingTimeout):
        return "no answer in time"
    if isinstance(error, RequestRefused):
        if error.response_code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return "it does not support one of the requests of this page"
        if is_denial(error):
            return f"it refuses a request of this account: {error}"
    return str(error)
