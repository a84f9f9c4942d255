"""A slave's side of replication: it finds its master, checks it, connects, and follows its log.

A slave is useful only if its log is an exact copy of the log on its master. Each attempt
therefore begins with a check by the guard, which compares the end of the local log with the
master's log. Only then does the slave connect to the port for replication.

A send on the master may wait for this slave, so the slave has to acknowledge quickly. It appends
and reports received bytes in the same reactor turn in which they are read. Making them readable
takes longer and follows in slices.

A lost connection is normal when a master restarts. The first failure is logged only as information;
it becomes a warning, and a fault in the health of the broker, when it lasts.

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
#: The pauses between a failure and the next attempt, ms: the first, and the longest, as Apache's.
_PAUSE_FIRST_MS, _PAUSE_MAX_MS = 500, 5000
#: The pause after the logs were found to differ, since checking the master again would not help.
_PAUSE_DIFFER_MS: Final = 20_000
#: Explains why a master may close a connection at once.
_UNHEARD: Final = (
    "before it sent anything, as a master does if its ha.peers do not list this host")


class _NoMasterError(BrokerError):
    """No master exists, or no master that answers name servers."""


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
        #: The time of the next attempt, and the length of the last pause, ms.
        self._try_ms = self._pause_ms = 0
        #: When the master was last heard, or when following began.
        self._heard_ms = self._now_ms()
        #: Why no connection exists, as it was logged; empty while one exists.
        self.fault = ""
        #: Whether the fault was logged as a warning. A fault that may pass becomes a warning only
        #: when it lasts.
        self._has_warned = False
        #: Whether the last connection ended before the master sent anything.
        self._was_shut_out = False
        #: The end of the last whole message when bytes of the master could not be kept; None if all
        #: bytes were kept since.
        self._refused_at: int | None = None
        #: Whether the logs differ, which is a fault that does not pass without an operator.
        self.differs = False
        #: The master of the present or last connection: its replication port and request port.
        self.address = self._requests = ""
        #: The number of connections made since the start, and of log bytes received.
        self.connections = self.received_bytes = 0
        self._rate = ByteRate(0)
        #: Whether a flush is awaited in order to report the bytes that it covers.
        self._flushes = False

    # --- life

    def start(self) -> None:
        """Begin to follow the master."""
        if not self._runs:
            self._runs = True
            self._try_ms, self._pause_ms = 0, _PAUSE_FIRST_MS
            self._heard_ms = self._now_ms()

    def retry(self) -> None:
        """Try to connect at once, since the master is available."""
        self._try_ms = self._now_ms()
        self.tick()

    def stop(self) -> None:
        """Stop following; nothing is appended after this."""
        self._runs = False
        if self._trying is not None:
            self._trying.cancel()
        if self.link is not None:
            self.link.end("this broker is no longer a slave, or stops")

    @property
    def is_connected(self) -> bool:
        """Whether the master is being followed."""
        return self.link is not None

    @property
    def source(self) -> str:
        """Where the master whose log is followed takes requests, "host:port"; empty without one.

        If name servers call another broker the master, it is not asked for anything until its log
        was compared and is followed. A broker that ``ha.master`` names does not need this proof.
        """
        return self._master.configured_address or (self._requests if self.link is not None else "")

    @property
    def hears_master(self) -> bool:
        """Whether the master is followed and has sent anything."""
        return self.link is not None and self.link.is_heard

    def health(self) -> str:
        """Return the fault that an operator should see; empty while everything works."""
        if not self._runs:
            return ""
        self._note_heard(self.link)
        silent_ms = self._now_ms() - self._heard_ms
        silence_ms = max(FAULT_AFTER_MS, self._broker.settings.int("haHousekeepingInterval"))
        if self.differs or silent_ms >= silence_ms:
            return self.fault or f"the master was not heard for {silent_ms // 1000} s"
        return ""

    def _note_heard(self, link: MasterLink | None) -> None:
        """Note when the master was last heard.

        A connection that brought nothing does not count. Nor does a connection that only repeats
        bytes that could not be kept before; it counts when the log grows, or when the master has
        nothing to send.
        """
        if self._refused_at is not None and (
                self._store.raw.whole_offset > self._refused_at
                or (link is not None and link.receiver.is_idle)):
            self._refused_at = None
        if link is not None and link.is_heard and self._refused_at is None:
            self._heard_ms = max(self._heard_ms, link.receiver.read_ms)

    # --- connecting

    def rest_ms(self) -> int | None:
        """Return how long :meth:`tick` has nothing to do, ms; None while no master is followed."""
        return 0 if self._runs else None

    def tick(self, _: int = 0) -> None:
        """Handle heartbeats and silences, and connect when that is due; periodic."""
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
        """Handle the end of an attempt."""
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
        """Check the master and connect.

        :raises BrokerError: when no master exists, or when it cannot be followed.
        """
        master = self._master
        if not master.replication or not master.requests:
            raise _NoMasterError("no name server knows a master")
        requests = master.requests
        offset = await self._guard.prepare(requests)
        await self._connect(master.replication_of(self._guard.replication), offset, requests)

    async def _connect(self, address: str, offset: int, requests: str = "") -> None:
        """Connect to a master's port for replication.

        :param requests: the master's port for requests.
        :raises RemotingError: when the master does not accept the connection.
        """
        receiver = Receiver(self._broker.settings, self._store.raw.file_size, offset,
                            self._now_ms(),
                            self._broker.broker_id if self._guard.hears_ids else None)
        link = MasterLink(receiver, self._now_ms, self._take, self._ended)
        await self._broker.host.connect_stream(
            _OneLink(link), address, timeout_ms=_CONNECT_TIMEOUT_MS,
            encrypted=self._broker.settings.flag(TLS))
        if not self._runs:
            link.end("this broker is no longer a slave, or stops")
            return
        self.link, self.address, self._requests = link, address, requests
        self._broker.identity.has_master = True
        self.connections += 1
        self.differs = False
        if self._refused_at is not None and offset < self._refused_at:
            # The log was cut since the refusal.
            self._refused_at = None
        if not self._was_shut_out:
            self._connected(offset)

    def _connected(self, offset: int) -> None:
        """Log that the log is followed; after a failed attempt only once the master is heard."""
        self._was_shut_out = False
        if self._refused_at is not None:
            return
        self.fault = ""
        self._pause_ms = _PAUSE_FIRST_MS
        self.log.info("connected to master {address}: the log continues at {offset}",
                      address=self.address, offset=offset)

    def _ended(self, link: MasterLink, why: str) -> None:
        """Handle the loss of the connection; one that was not made yet ends the attempt instead."""
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
        """Log why no connection exists, unless that was logged before, and wait.

        :param may_pass: whether the failure looks like the start or the stop of a master.
        """
        self._try_ms = max(self._try_ms, self._now_ms() + pause_ms)
        # Before the first registration this is expected.
        if why == self.fault or not (self._master.has_answer or self._master.replication):
            return
        self.fault = why
        if may_pass and not self._is_overdue:
            self._has_warned = False
            self.log.info("the master is not followed at the moment: {why}", why=why)
        else:
            self._warn()

    @property
    def _is_overdue(self) -> bool:
        """Whether the master has been silent for long enough that an operator should look."""
        return self._now_ms() - self._heard_ms >= FAULT_AFTER_MS

    def _warn(self) -> None:
        self._has_warned = True
        self.log.warn("the master is not followed: {why}", why=self.fault)

    def _pause(self) -> int:
        """Return the pause before the next attempt, ms; it is longer each time."""
        pause_ms = self._pause_ms
        self._pause_ms = min(2 * pause_ms, _PAUSE_MAX_MS)
        return pause_ms

    # --- following

    def _take(self, link: MasterLink, offset: int, data: bytes) -> None:
        """Append received bytes and report them."""
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
        """Make the appended messages readable."""
        try:
            while self._store.dispatch.step():
                yield
        finally:
            self._dispatches = False

    def _report_flushed(self) -> None:
        """Report the bytes that are on disk, now and after a pending flush."""
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
        """When bytes were last received, Unix ms; 0 without a connection."""
        return self._wall_ms(self.link.receiver.read_ms) if self.link is not None else 0

    @property
    def last_written_ms(self) -> int:
        """When a report was last written, Unix ms; 0 without a connection."""
        return self._wall_ms(self.link.receiver.reported_ms) if self.link is not None else 0

    def _wall_ms(self, awake_ms: int) -> int:
        return self._broker.now_ms() - (self._now_ms() - awake_ms)

    def received_in_second(self) -> int:
        """Return the number of log bytes received in the last whole second."""
        return self._rate.in_second(self._now_ms())


class _OneLink(Factory):
    """Returns the one protocol that a connection is made for."""

    noisy = False

    def __init__(self, link: MasterLink) -> None:
        self._link = link

    def buildProtocol(self, addr: IAddress | None) -> MasterLink:
        return self._link
