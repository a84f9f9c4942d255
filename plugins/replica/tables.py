"""A slave's copies of its master's tables: topics, groups, consumer offsets, tables of plugins.

Each table is requested periodically. Only differences are applied here, so that a table that did
not change is not saved again. Some tables record which messages were processed. Such a table waits
until the local log is as long as the master's log was: otherwise a slave that took over with a
shorter log would treat messages as processed that it does not have. While the master's log is
shorter than the local one, as after the loss of its disk, no table is copied.

Source: SlaveSynchronize @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import BrokerError, RequestRefused, ResponseCode
from twistmq.broker.api.errors import RemotingError
from twistmq.broker.api.observe import Outage
from twistmq.plugins.replica.ask import ask, log_end_of, vip_address
from twistmq.plugins.replica.kernel_tables import KernelTable, kernel_tables

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.broker.api.requests import SyncedTable
    from twistmq.plugins.replica.commits import Commits

__all__ = ["TableCopies"]

#: The time after which a master is asked again for a table that it did not know, ms.
_UNKNOWN_MS: Final = 600_000
#: Once the local log has stood still for this time, ms, the processing of messages has ended, and
#: its progress is settled and copied, because a log is flushed within ten seconds.
_STILL_MS: Final = 15_000
#: The period with which tables that record this processing are then copied, ms.
_STILL_PERIOD_MS: Final = 3000


@dataclass(slots=True)
class _Copied:
    """A table, and the state of its copies.

    :param is_current: whether the local table is still as it was copied.
    :param begin: called before the first copy of each master.
    :param note_end: called before each copy with an end of the master's log, see ``KernelTable``.
    """

    table: SyncedTable
    is_current: Callable[[], bool]
    begin: Callable[[], None]
    note_end: Callable[[int], None]
    outage: Outage = field(default_factory=Outage)
    #: When the table last equalled the master's, on the clock for durations, ms.
    copied_ms: int | None = None


@dataclass(slots=True)
class _Answer:
    """A request to the master, and the tables that its response contains."""

    code: int
    vip: bool
    follows_log: bool
    tables: list[_Copied]
    #: When the request is due, on the clock for durations, ms.
    due_ms: int = 0
    #: The digest of the last response that was applied.
    digest: bytes = b""
    #: A response body, and the end of the master's log after it.
    waiting: tuple[bytes, int] | None = None
    outage: Outage = field(default_factory=Outage)
    #: Whether the master at this address answered that it does not know the request.
    is_unknown: bool = False

    @property
    def period_ms(self) -> int:
        return min(each.table.period_ms for each in self.tables)

    def can_be_taken(self, reached: int) -> bool:
        """Whether a response waits for nothing more.

        :param reached: the offset up to which messages of the local log can be read.
        """
        return self.waiting is not None and (not self.follows_log or self.waiting[1] <= reached)

    @property
    def names(self) -> str:
        return ", ".join(each.table.name for each in self.tables)


class TableCopies:
    """Copies the tables of one slave.

    :param master: returns where the master takes requests, "host:port"; empty while unknown.
    :param commits: consumer offsets that were committed at this slave.
    :param lead: returns a number that changes with the master, also when the next one has the same
        address.
    """

    log = Logger()

    def __init__(
        self, broker: Broker, master: Callable[[], str], commits: Commits,
        lead: Callable[[], int] = lambda: 0,
    ) -> None:
        self._broker = broker
        self._master = master
        self._lead = lead
        self._commits = commits
        self._answers: list[_Answer] = []
        #: The master that was asked last, and its lead.
        self._address = ""
        self._asked_lead = 0
        #: Whether this broker is about to become a master, so that another one may not exist now.
        self._is_last = False
        self._silent, self._shorter = Outage(), Outage()
        #: The end of the local log, and when it was found to have moved, on the clock for
        #: durations, ms.
        self._end, self._moved_ms = -1, 0

    def copy_due(self, now_ms: int) -> Deferred[None] | None:
        """Copy the tables that are due, if this broker is a slave. Periodic.

        A slave that stands in for its master does not copy: the returning master takes the slave's
        tables first.
        """
        address = self._find_source()
        if not address:
            return None
        if self._is_new(address):
            self._begin(address)
        return Deferred.fromCoroutine(self._copy(address))

    def rest_ms(self) -> int | None:
        """Return how long :meth:`copy_due` has nothing to do unless something happens, ms.

        :returns: 0 when it has work; None while there is no master to copy from.
        """
        address = self._find_source()
        if not address:
            return None
        if self._is_new(address):
            return 0
        self._look_at_log()
        due_times: list[int] = []
        for answer in self._answers:
            if answer.waiting is None:
                due_times.append(self._due_ms(answer))
            elif answer.can_be_taken(self._reached):
                return 0
        if not due_times:
            return None
        return max(min(due_times) - self._broker.steady.now_ms(), 0)

    def _look_at_log(self) -> None:
        """Note whether the local log has moved."""
        end = self._broker.store.commit_log.max_offset
        if end != self._end:
            self._end, self._moved_ms = end, self._broker.steady.now_ms()

    def _due_ms(self, answer: _Answer) -> int:
        """Return when a request is due, on the clock for durations, ms."""
        is_still = self._broker.steady.now_ms() - self._moved_ms >= _STILL_MS
        if (not is_still or not answer.follows_log or not answer.due_ms
                or answer.period_ms >= _STILL_PERIOD_MS):
            return answer.due_ms
        asked_ms = answer.due_ms - answer.period_ms
        return asked_ms - asked_ms % _STILL_PERIOD_MS + _STILL_PERIOD_MS

    def _find_source(self) -> str:
        """Return the address of the master to copy from; empty if this broker does not copy."""
        broker = self._broker
        address = self._master() if broker.is_slave and not broker.identity.is_acting else ""
        return "" if address == broker.broker_address else address

    def _is_new(self, address: str) -> bool:
        """Return whether the master at an address has a lead in which it was not asked yet."""
        return (address, self._lead()) != (self._address, self._asked_lead)

    def _begin(self, address: str) -> None:
        """Forget the responses of a previous master."""
        self._address, self._asked_lead = address, self._lead()
        self._shorter.ends()
        if not self._answers:
            self._answers = _answers(kernel_tables(self._broker, self._commits),
                                     self._broker.hooks.collect_synced_tables())
        for answer in self._answers:
            answer.due_ms, answer.digest, answer.waiting = 0, b"", None
            answer.is_unknown = False
            for each in answer.tables:
                each.begin()

    # --- a round

    async def _copy(self, address: str) -> None:
        await self._take_reached(address)
        self._look_at_log()
        due_ms = self._broker.steady.now_ms()
        due_answers = [answer for answer in self._answers
                       if answer.waiting is None and self._due_ms(answer) <= due_ms]
        if due_answers:
            await self._ask(address, due_answers, due_ms)
            await self._take_reached(address)

    async def _take_reached(self, address: str) -> None:
        """Apply the responses that the local log has reached."""
        for answer in self._answers:
            if answer.can_be_taken(self._reached):
                await self._take(address, answer)

    @property
    def _reached(self) -> int:
        """The offset up to which messages of the log can be read."""
        return self._broker.store.dispatch.offset

    async def _ask(self, address: str, due_answers: Sequence[_Answer], due_ms: int) -> None:
        """Request tables together, and afterwards the master's log end as a bound for them."""
        own_end = self._broker.store.commit_log.max_offset
        results: list[tuple[bool, Any]] = await DeferredList(
            [Deferred.fromCoroutine(self._body(address, answer)) for answer in due_answers],
            consumeErrors=True)
        bodies: list[tuple[_Answer, bytes]] = []
        for answer, (_, result) in zip(due_answers, results, strict=True):
            # The time is a multiple, so that requests with the same period are due together.
            answer.due_ms = due_ms - due_ms % answer.period_ms + answer.period_ms
            if not isinstance(result, Failure):
                answer.outage.ends()
                bodies.append((answer, result))
            elif isinstance(result.value, RequestRefused):
                self._refused(address, answer, result.value)
            elif isinstance(result.value, RemotingError):
                # The remaining requests stay due, because the master may answer again soon.
                self._failed(self._silent, address, "its tables", result.value)
                return
            else:
                result.raiseException()
        if not bodies:
            return
        try:
            end = await log_end_of(self._broker, address)
        except BrokerError as error:
            self._failed(self._silent, address, "the end of its log", error)
            return
        self._silent.ends()
        if self._is_shorter(address, end, own_end):
            return
        for answer, body in bodies:
            answer.waiting = body, end

    async def _body(self, address: str, answer: _Answer) -> bytes:
        """:raises BrokerError: when the master does not provide the table."""
        if answer.vip:
            try:
                return await ask(self._broker, vip_address(address), answer.code)
            except RemotingError:
                # The port two below may be closed to this host.
                pass
        return await ask(self._broker, address, answer.code)

    def _refused(self, address: str, answer: _Answer, error: RequestRefused) -> None:
        """Handle a missing table: an older master is asked rarely, which is logged once."""
        if error.response_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._failed(answer.outage, address, answer.names, error)
            return
        answer.due_ms += _UNKNOWN_MS
        if not answer.is_unknown:
            answer.is_unknown = True
            self.log.info("the master at {address} has no {names} to copy (request {code})",
                          address=address, names=answer.names, code=answer.code)

    def _failed(self, outage: Outage, address: str, names: str, error: Exception) -> None:
        if outage.begins():
            # If the master is gone, the follower reports that, with a warning when it lasts.
            write = self.log.warn if self._broker.identity.has_master else self.log.info
            write("the master at {address} does not provide {names}: {error}", address=address,
                  names=names, error=str(error))

    def _is_shorter(self, address: str, end: int, own_end: int) -> bool:
        """Whether the master lacks messages that are here, so that its tables may be older too."""
        if end >= own_end:
            self._shorter.ends()
            return False
        if self._shorter.begins():
            self.log.error(
                "the log of the master at {address} ends at {end}, before the local log, which "
                "ends at {own_end}: its tables are not copied", address=address, end=end,
                own_end=own_end)
        return True

    # --- taking

    async def _take(self, address: str, answer: _Answer) -> None:
        """Apply the tables of a response, unless they are unchanged."""
        assert answer.waiting is not None
        body, end = answer.waiting
        answer.waiting = None
        digest = applied_digest = blake2b(body, digest_size=16).digest()
        for each in answer.tables:
            # A broker that became master, or follows another one, must not apply this response.
            if not self._broker.is_slave or not (self._is_last or self._master() == address):
                return
            each.note_end(end)
            is_same = digest == answer.digest and each.is_current()
            if is_same or await self._apply(address, each, body):
                each.copied_ms = self._broker.steady.now_ms()
            else:
                applied_digest = b""
        answer.digest = applied_digest

    async def _apply(self, address: str, copied: _Copied, body: bytes) -> bool:
        """Apply one table; :returns: whether that was possible."""
        try:
            waiting = copied.table.take(body)
            if waiting is not None:
                await waiting
        except (BrokerError, OSError) as error:
            self._failed(copied.outage, address, copied.table.name, error)
            return False
        copied.outage.ends()
        return True

    def copy_last(self) -> Deferred[None]:
        """Copy all tables once more if the master answers, because this broker becomes a master.

        A response that waited for the log is applied if the log has reached it.
        """
        return Deferred.fromCoroutine(self._copy_last())

    async def _copy_last(self) -> None:
        self._is_last = True
        try:
            for answer in self._answers:
                if not answer.is_unknown:
                    answer.due_ms = 0
            if self._address:
                await self._copy(self._address)
        finally:
            self._is_last = False
            for answer in self._answers:
                answer.waiting = None

    # --- figures

    def ages_ms(self) -> dict[str, int]:
        """Return each table's age, the time since it equalled the master's, by name, ms.

        Tables that never did are left out.
        """
        now_ms = self._broker.steady.now_ms()
        return {each.table.name: now_ms - each.copied_ms
                for answer in self._answers for each in answer.tables
                if each.copied_ms is not None}


def _answers(kernel: Sequence[KernelTable], tables: Sequence[SyncedTable]) -> list[_Answer]:
    """Make the requests for tables; tables that share a request are joined."""
    answers: dict[tuple[int, bool, bool], _Answer] = {}
    copied = [*(_Copied(each.table, each.is_current, each.begin, each.note_end) for each in kernel),
              *(_Copied(table, lambda: True, lambda: None, lambda end: None) for table in tables)]
    for each in copied:
        table = each.table
        key = (table.code, table.vip, table.follows_log)
        answers.setdefault(key, _Answer(*key, [])).tables.append(each)
    return list(answers.values())
