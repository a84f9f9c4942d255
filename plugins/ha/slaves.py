"""The slaves of a master: their connections, the data they get, and their progress.

A send may wait for a slave, so appended records are sent at once while the slaves have everything
that was sent before, and each report completes the sends that waited for it. A slave that lags must
neither delay the other slaves nor fill the memory, so each connection reads the records from the
log when it can send them.

Connections that did not send a report yet do not count as slaves. If there are more than
``_UNREPORTED_MAX`` of them, the oldest is closed, so that strangers and probes that only connect
cannot keep a slave out.

Source: DefaultHAService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from twistmq.broker.api import hookimpl
from twistmq.plugins.ha.links import CLOSED, SlaveLink
from twistmq.plugins.ha.sender import Sender
from twistmq.plugins.ha.settings import FAULT_AFTER_MS, PEERS, TLS, networks
from twistmq.plugins.ha.waits import ReplicaWaits
from twistmq.plugins.replica.host_lines import HostLines

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, MessageRecord
    from twistmq.broker.api.requests import OpenPort

__all__ = ["Slaves"]

#: The reason for which connections end when the broker stops.
STOPS: Final = "this broker stops"
#: The number of connections without a report; a further one closes the oldest of them.
_UNREPORTED_MAX: Final = 64
#: The number of reporting connections of one host; a further one closes the oldest of them.
_HOST_SLAVES_MAX: Final = 32
#: The name under which the hook that wakes senders is registered.
_HOOK: Final = "ha_senders"


class _Wake:
    """Wakes the senders when records were appended; the hook exists while any slave does."""

    def __init__(self, slaves: Slaves) -> None:
        self._slaves = slaves

    @hookimpl
    def on_dispatch(self, records: Sequence[MessageRecord]) -> None:
        self._slaves.send_soon()


class _Factory(Factory):
    """Makes the protocol of each connection to the port for slaves."""

    noisy = False

    def __init__(self, slaves: Slaves) -> None:
        self._slaves = slaves

    def buildProtocol(self, addr: IAddress | None) -> SlaveLink | None:
        return self._slaves.connected(addr)


class Slaves:
    """The slaves of one broker, and its port for them."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._now_ms = broker.steady.awake_ms
        self._peers = networks(broker.settings)
        self._port: OpenPort | None = None
        #: The connections, the oldest first.
        self._links: dict[SlaveLink, None] = {}
        self._will_send = False
        #: Whether the hook that wakes senders is registered.
        self._is_woken = False
        self._say = HostLines(broker.steady.now_ms).write
        #: Since when slaves that sends wait for are lacking; 0 while none is lacking.
        self._lacking_ms = 0
        #: Slaves that closed their connection and may come back, by host: since when they are gone,
        #: and "host:port".
        self._gone: dict[str, tuple[int, str]] = {}
        self.waits = ReplicaWaits(broker, self._acked)
        self._stage = self.waits.stage()

    @property
    def links(self) -> list[SlaveLink]:
        """The connections that count as slaves."""
        return [link for link in self._links if link.has_reported]

    def _acked(self) -> Iterable[int]:
        """Return how far each slave has the log; for a slave with two connections the later counts.

        Differs from Apache, whose master counts connections: a connection that its slave has left
        but that is not closed here yet does not stand for a second copy.
        """
        return {link.slave: link.sender.acked for link in self.links}.values()

    # --- life

    def start(self) -> None:
        """Listen for slaves, and publish the port through name servers.

        :raises OSError: when ``haListenPort`` was given and cannot be opened.
        :raises SettingsError: when the connections cannot be encrypted as configured.
        """
        settings = self._broker.settings
        self._set_stage()
        if settings.access_setting and not self._peers.networks:
            return
        interface = settings.text("ha.bind").strip() or None
        port, encrypted = settings.int("haListenPort"), settings.flag(TLS)
        serve, factory = self._broker.host.serve_stream, _Factory(self)
        try:
            self._port = serve(factory, port, interface, encrypted=encrypted)
        except OSError as error:
            if settings.is_given("haListenPort"):
                raise
            # Slaves learn the port from name servers, so a port other than the default works too.
            self._port = serve(factory, 0, interface, encrypted=encrypted)
            self.log.warn("port {wanted} for slaves cannot be opened: {error}; {port} is used",
                          wanted=port, error=error, port=self._port.port)
        self._broker.identity.ha_port = self._port.port

    def _set_stage(self) -> None:
        """Make sends wait for slaves, under SYNC_MASTER only."""
        stages = self._broker.acknowledgement.stages
        if self._stage in stages:
            stages.remove(self._stage)
        if self._broker.role == "SYNC_MASTER":
            stages.append(self._stage)

    def stop(self) -> Deferred[None] | None:
        """Stop listening and close the connections."""
        port, self._port = self._port, None
        self.end_all(STOPS)
        return None if port is None else port.stop()

    def role_changed(self) -> None:
        """Drop all slaves: this broker is now a slave without slaves, or a master with new ones."""
        self.end_all("the role of this broker changed")
        self._gone.clear()
        self.waits.release()
        self._set_stage()

    def end_all(self, why: str) -> None:
        """Close all connections at once."""
        for link in list(self._links):
            link.end(why)

    # --- connections

    def connected(self, addr: IAddress | None) -> SlaveLink | None:
        """Make the protocol of a connection; None closes a connection that is not allowed."""
        host, port = getattr(addr, "host", ""), getattr(addr, "port", 0)
        if not self._peers.allows_host(host):
            self._say(self.log.warn, f"{host}:{port}", "a connection of {peer} to the port for "
                      "slaves is closed: {why}", why=f"it is not in {PEERS}")
            return None
        if self._broker.is_slave:
            return None
        unreported = [link for link in self._links if link.sender.acked < 0 and not link.is_over]
        if len(unreported) >= _UNREPORTED_MAX:
            unreported[0].end("it did not report")
        link = SlaveLink(Sender(self._broker.store, self._broker.settings, self._now_ms()),
                         f"{host}:{port}", self._now_ms, self._reported, self._ended)
        self._links[link] = None
        return link

    def _reported(self, link: SlaveLink, is_first: bool) -> None:
        if is_first:
            self._say(self.log.info, link.peer, "slave {peer} has the log up to {offset} and "
                      "continues at {next}", offset=link.sender.acked, next=link.sender.next_offset)
            self._gone.pop(link.host, None)
            self._look_at_others(link)
            self._set_wake()
        self.waits.reported()

    def _look_at_others(self, link: SlaveLink) -> None:
        """Warn if another slave has the id of a new one, and limit the slaves of one host."""
        others = [each for each in self.links if each is not link]
        for other in others:
            if link.sender.slave_id is not None and other.slave == link.slave:
                self._say(self.log.warn, link.peer, "slave {peer} reports brokerId {id}, as does "
                          "{other}, which is still connected: only the later one counts",
                          id=link.slave, other=other.peer)
        same_host = [each for each in others if each.host == link.host]
        if len(same_host) >= _HOST_SLAVES_MAX:
            same_host[0].end(f"{_HOST_SLAVES_MAX} slaves of its host connected after it")

    def _ended(self, link: SlaveLink, why: str) -> None:
        del self._links[link]
        if link.sender.acked < 0:
            if why != CLOSED:
                self._say(self.log.warn, link.peer, "a connection of {peer} to the port for "
                          "slaves is closed: {why}", why=why)
            return
        if why == STOPS:
            self.log.info("the connection of slave {peer} is closed: {why}", peer=link.peer,
                          why=why)
        elif why == CLOSED:
            # This is normal for a slave that is restarted.
            self._say(self.log.info, link.peer, "slave {peer} is gone: {why}", why=why)
            self._gone.setdefault(link.host, (self._now_ms(), link.peer))
        else:
            self._say(self.log.warn, link.peer, "slave {peer} is gone: {why}", why=why)
        self._set_wake()
        self.waits.reported()

    def _set_wake(self) -> None:
        """Register the hook that wakes senders as long as any slave exists."""
        is_woken = bool(self.links)
        if is_woken and not self._is_woken:
            self._broker.hooks.add(_HOOK, _Wake(self))
        elif self._is_woken and not is_woken:
            self._broker.hooks.remove(_HOOK)
        self._is_woken = is_woken

    # --- sending

    def send_soon(self) -> None:
        """Send appended records, at once if slaves have all that was sent before.

        Otherwise they are sent after the reactor has served other events, together with the records
        that these events append.
        """
        if self._will_send:
            return
        if all(link.sender.acked == link.sender.next_offset for link in self.links):
            self._send()
        else:
            self._will_send = True
            self._broker.host.run_soon(self._send)

    def _send(self) -> None:
        self._will_send = False
        for link in list(self._links):
            link.send()

    def rest_ms(self) -> int | None:
        """Return how long :meth:`tick` has nothing to do, ms; None while there are no slaves."""
        has_work = (self._links or self._gone or self.waits.count or self._lacking_ms
                    or self._lacking())
        return 0 if has_work else None

    def tick(self, _: int = 0) -> None:
        """Send heartbeats, check silences, and end sends that waited too long; periodic."""
        for link in list(self._links):
            link.tick()
        self.waits.expire()
        self._look_for_gone()
        if self._lacking():
            self._lacking_ms = self._lacking_ms or self._now_ms()
        else:
            self._lacking_ms = 0

    def _look_for_gone(self) -> None:
        """Log each slave that has been disconnected for too long."""
        now_ms = self._now_ms()
        for host, (since_ms, peer) in list(self._gone.items()):
            if now_ms - since_ms >= FAULT_AFTER_MS:
                del self._gone[host]
                self.log.warn("slave {peer} has been gone for {seconds} s", peer=peer,
                              seconds=(now_ms - since_ms) // 1000)

    def _lacking(self) -> int:
        """Return how many of the slaves that sends wait for are lacking."""
        if self._broker.role != "SYNC_MASTER":
            return 0
        return max(0, self.waits.required_count() - 1 - len(list(self._acked())))

    def health(self) -> str:
        """Return the fault that an operator should see; empty while everything works."""
        lacking = self._lacking()
        lacking_ms = self._now_ms() - self._lacking_ms if self._lacking_ms else 0
        if not lacking or lacking_ms < FAULT_AFTER_MS:
            return ""
        return (f"each send waits for {self.waits.required_count() - 1} slaves, and "
                f"{lacking} of them have been missing for {lacking_ms // 1000} s")

    def log_lag(self, _: int = 0) -> None:
        """Log the lag of each slave; periodic.

        Source: BrokerController.printMasterAndSlaveDiff @5.3.3, which logs only the slave with the
        largest lag.
        """
        for link in self.links:
            self.log.info("slave {peer} is {size} bytes behind the commit log",
                          peer=link.peer, size=link.sender.behind_bytes())
