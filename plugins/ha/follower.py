"""A slave's side of replication: it finds its master, looks at it, connects, and follows its log.

Bytes that come are appended and reported in the turn they are read in; they are made readable in
slices after it, so that a send that waits for this slave does not wait for that.

Source: DefaultHAClient @5.3.3.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import BrokerError, StoreError
from twistmq.broker.api.errors import RemotingError
from twistmq.plugins.ha.guard import Guard, LogsDiffer
from twistmq.plugins.ha.links import CLOSED, MasterLink
from twistmq.plugins.ha.rate import ByteRate
from twistmq.plugins.ha.receiver import Receiver
from twistmq.plugins.ha.settings import FAULT_AFTER_MS, TLS

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.ha.master import MasterAddress

__all__ = ["Follower"]

#: Source: DefaultHAClient.connectMaster, run @5.3.3.
_CONNECT_TIMEOUT_MS: Final = 5000
#: From a failure to the next try, ms: the first, and the longest, which is Apache's.
_PAUSE_FIRST_MS, _PAUSE_MAX_MS = 500, 5000
#: The same for logs that differ, which a look at the master does not change.
_PAUSE_DIFFER_MS: Final = 20_000
#: Why a master may close a connection at once.
_UNHEARD: Final = "before it sent anything; a master does so whose ha.peers do not list this host"


class _NoMasterError(BrokerError):
    """There is no master, or none that answers name servers."""


class Follower:
    """Follows the master of one broker."""

    log = Logger()

    def __init__(self, broker: Broker, master: MasterAddress) -> None:
        self._broker = broker
        self._store = broker.store
        self._master = master
        self._now_ms = broker.steady.awake_ms
        self._guard = Guard(broker)
        self._lane = broker.foreground.lane()
        self._dispatches = False
        self.link: MasterLink | None = None
        self._trying: Deferred[None] | None = None
        self._runs = False
        #: When it is tried again, and how long it was waited last, ms.
        self._try_ms = self._pause_ms = 0
        #: When the master was heard last, or this began.
        self._heard_ms = self._now_ms()
        #: Why there is no connection, as it was said in the log; empty: there is one.
        self.fault = ""
        #: Whether that was a warning, which what passes by itself is only when it lasts.
        self._has_warned = False
        #: Whether the last connection ended before the master sent anything.
        self._was_shut_out = False
        #: Where the last whole message ended when bytes of the master could not be kept; None: all
        #: were kept since.
        self._refused_at: int | None = None
        #: Whether the logs differ: then the fault does not pass by itself.
        self.differs = False
        #: Where the connection leads, or the last one did, and where that master takes requests.
        self.address = self._requests = ""
        #: Connections that were made since the start, and bytes of the log that came.
        self.connections = self.received_bytes = 0
        self._rate = ByteRate(0)
        #: Whether a flush is awaited, to report what it covers.
        self._flushes = False

    # --- life

    def start(self) -> None:
        """Begin to follow."""
        if not self._runs:
            self._runs = True
            self._try_ms, self._pause_ms = 0, _PAUSE_FIRST_MS
            self._heard_ms = self._now_ms()

    def retry(self) -> None:
        """Try at once to connect, since the master is there."""
        self._try_ms = self._now_ms()
        self.tick()

    def stop(self) -> None:
        """Follow no longer; nothing is appended after this."""
        self._runs = False
        if self._trying is not None:
            self._trying.cancel()
        if self.link is not None:
            self.link.end("this broker is no slave any longer, or stops")

    @property
    def is_connected(self) -> bool:
        """Whether the master is being followed."""
        return self.link is not None

    @property
    def source(self) -> str:
        """Where the master takes requests whose log is followed, "host:port"; empty without one.

        Another broker that name servers call the master is asked for nothing until its log was
        compared and is followed. What ``ha.master`` names needs no such proof.
        """
        return self._master.given or (self._requests if self.link is not None else "")

    @property
    def hears_master(self) -> bool:
        """Whether it is, and has sent something."""
        return self.link is not None and self.link.is_heard

    def health(self) -> str:
        """The fault that an operator should see; empty while there is no such fault."""
        if not self._runs:
            return ""
        self._note_heard(self.link)
        silent_ms = self._now_ms() - self._heard_ms
        silence_ms = max(FAULT_AFTER_MS, self._broker.settings.int("haHousekeepingInterval"))
        if self.differs or silent_ms >= silence_ms:
            return self.fault or f"the master was not heard for {silent_ms // 1000} s"
        return ""

    def _note_heard(self, link: MasterLink | None) -> None:
        """Note when the master was heard last.

        A connection that brought nothing does not count, nor one that brings again what could not
        be kept before: it does when the log grows, or the master has nothing to send.
        """
        if self._refused_at is not None and (
                self._store.raw.whole_offset > self._refused_at
                or (link is not None and link.receiver.is_idle)):
            self._refused_at = None
        if link is not None and link.is_heard and self._refused_at is None:
            self._heard_ms = max(self._heard_ms, link.receiver.read_ms)

    # --- connecting

    def tick(self, _: int = 0) -> None:
        """Heartbeats and silences; connect when that is due; periodic."""
        if not self._runs:
            return
        now_ms = self._now_ms()
        if self.link is not None:
            self._note_heard(self.link)
            if (self._was_shut_out or self.fault) and self.link.is_heard:
                self._connected(self._store.commit_log.max_offset)
            if self.link.tick():
                self._try_ms = now_ms
            return
        if self.fault and not self._has_warned and self._is_overdue:
            self._warn()
        if self._trying is None and now_ms >= self._try_ms:
            self._trying = trying = Deferred.fromCoroutine(self._try())
            trying.addBoth(self._tried)

    def _tried(self, result: Failure | None) -> None:
        """A try is over."""
        self._trying = None
        if result is None or result.check(CancelledError):
            return
        if result.check(LogsDiffer):
            self.differs = True
            self._failed(str(result.value), _PAUSE_DIFFER_MS, may_pass=False)
            return
        if not result.check(BrokerError):
            self.log.failure("the connection to the master failed", result)
        self._broker.host.register_soon()
        self._failed(str(result.value), self._pause(),
                     may_pass=result.check(RemotingError, _NoMasterError) is not None)

    async def _try(self) -> None:
        """Look at the master and connect.

        :raises BrokerError: when there is no master, or it cannot be followed.
        """
        master = self._master
        if not master.replication or not master.requests:
            raise _NoMasterError("no name server knows a master")
        requests = master.requests
        offset = await self._guard.prepare(requests)
        await self._connect(master.replication_of(self._guard.replication), offset, requests)

    async def _connect(self, address: str, offset: int, requests: str = "") -> None:
        """Connect to the port for replication of a master.

        :param requests: its port for requests.
        :raises RemotingError: when the master does not take the connection.
        """
        receiver = Receiver(self._broker.settings, self._store.raw.file_size, offset,
                            self._now_ms(),
                            self._broker.broker_id if self._guard.hears_ids else None)
        link = MasterLink(receiver, self._now_ms, self._take, self._ended)
        await self._broker.host.connect_stream(
            _OneLink(link), address, timeout_ms=_CONNECT_TIMEOUT_MS,
            encrypted=self._broker.settings.flag(TLS))
        if not self._runs:
            link.end("this broker is no slave any longer, or stops")
            return
        self.link, self.address, self._requests = link, address, requests
        self._broker.identity.has_master = True
        self.connections += 1
        self.differs = False
        if self._refused_at is not None and offset < self._refused_at:
            # The log was cut meanwhile.
            self._refused_at = None
        if not self._was_shut_out:
            self._connected(offset)

    def _connected(self, offset: int) -> None:
        """Say that the log is followed; when the last try came to nothing, once it is heard."""
        self._was_shut_out = False
        if self._refused_at is not None:
            return
        self.fault = ""
        self._pause_ms = _PAUSE_FIRST_MS
        self.log.info("connected to master {address}: the log goes on at {offset}",
                      address=self.address, offset=offset)

    def _ended(self, link: MasterLink, why: str) -> None:
        """The connection is lost; one that was not made yet ends the try instead."""
        if self.link is not link:
            return
        self.link = None
        self._broker.identity.has_master = False
        self._note_heard(link)
        if link.is_refused and self._refused_at is None:
            self._refused_at = self._store.raw.whole_offset
        may_pass = link.is_heard and why == CLOSED
        if not link.is_heard and why == CLOSED:
            self._was_shut_out = True
            why = f"{why} {_UNHEARD}"
        if self._runs:
            self._failed(f"the connection to {self.address} is lost: {why}", self._pause(),
                         may_pass=may_pass)

    def _failed(self, why: str, pause_ms: int, *, may_pass: bool) -> None:
        """Say why there is no connection, unless that was said, and wait.

        :param may_pass: whether it is what the start or the stop of a master looks like.
        """
        self._try_ms = max(self._try_ms, self._now_ms() + pause_ms)
        # Before the first registration there is nothing to say.
        if why == self.fault or not (self._master.is_told or self._master.replication):
            return
        self.fault = why
        if may_pass and not self._is_overdue:
            self._has_warned = False
            self.log.info("the master is not followed at the moment: {why}", why=why)
        else:
            self._warn()

    @property
    def _is_overdue(self) -> bool:
        """Whether the master was not heard for so long that an operator should look."""
        return self._now_ms() - self._heard_ms >= FAULT_AFTER_MS

    def _warn(self) -> None:
        self._has_warned = True
        self.log.warn("the master is not followed: {why}", why=self.fault)

    def _pause(self) -> int:
        """How long to wait before the next try, ms; longer each time."""
        pause_ms = self._pause_ms
        self._pause_ms = min(2 * pause_ms, _PAUSE_MAX_MS)
        return pause_ms

    # --- following

    def _take(self, link: MasterLink, offset: int, data: bytes) -> None:
        """Append what came, and report it."""
        self._store.raw.append(offset, data)
        self._rate.add(len(data), self._now_ms())
        self.received_bytes += len(data)
        if self._broker.settings.flag("ha.report_flushed"):
            self._report_flushed()
        else:
            link.report(offset + len(data))
        if not self._dispatches:
            self._dispatches = True
            self._lane.run(self._dispatching(), at_once=False)

    def _dispatching(self) -> Generator[None, None, None]:
        """Make readable what was appended."""
        try:
            while self._store.dispatch.step():
                yield
        finally:
            self._dispatches = False

    def _report_flushed(self) -> None:
        """Report what is on disk, now or when it is."""
        log = self._store.commit_log
        if not self._flushes:
            flushed = self._store.flush.flushed(log.max_offset)
            if flushed is not None:
                self._flushes = True
                flushed.addCallbacks(self._flushed, self._not_flushed)
        if self.link is not None:
            self.link.report(log.flushed_offset)

    def _flushed(self, _: None) -> None:
        self._flushes = False
        if self._runs:
            self._report_flushed()

    def _not_flushed(self, failure: Failure) -> None:
        self._flushes = False
        failure.trap(StoreError)
        if self.link is not None:
            self.link.end(str(failure.value))

    # --- figures

    @property
    def last_read_ms(self) -> int:
        """When something came last, Unix ms; 0 without a connection."""
        return self._wall_ms(self.link.receiver.read_ms) if self.link is not None else 0

    @property
    def last_written_ms(self) -> int:
        """When a report was written last, Unix ms; 0 without a connection."""
        return self._wall_ms(self.link.receiver.reported_ms) if self.link is not None else 0

    def _wall_ms(self, awake_ms: int) -> int:
        return self._broker.now_ms() - (self._now_ms() - awake_ms)

    def received_in_second(self) -> int:
        """Bytes of the log that came in the last whole second."""
        return self._rate.in_second(self._now_ms())


class _OneLink(Factory):
    """Gives the one protocol that a connection is made for."""

    noisy = False

    def __init__(self, link: MasterLink) -> None:
        self._link = link

    def buildProtocol(self, addr: IAddress | None) -> MasterLink:
        return self._link
