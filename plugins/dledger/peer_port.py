"""The port by which the other members of the group reach this one.

Any host that is allowed to connect can pretend to be a member, as at Apache's members, so the list
of allowed hosts is the protection of the group. A request that is not meant for this member, or is
not sound, never reaches the core: it is answered with a code and leads to one log line.

A connection is a stranger's until a member has sent a sound request over it. The strangers may have
few connections and little memory in total, so a port scan, a client of another protocol or a
misdirected broker cannot keep a member out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from twistmq.broker.api.wire import Frame
from twistmq.plugins.dledger.incoming_link import IncomingLink
from twistmq.plugins.dledger.peer_group import PeerGroup
from twistmq.plugins.dledger.peer_requests import PeerRequests
from twistmq.plugins.dledger.peer_settings import PEERS
from twistmq.plugins.replica.allowed_hosts import AllowedHosts
from twistmq.plugins.replica.host_lines import HostLines
from twistmq.raft.messages import Request, Response

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.broker.api.requests import OpenPort

__all__ = ["PeerPort"]

#: The number of strangers' connections; a further one closes the oldest of them.
STRANGERS_MAX: Final = 64
#: The number of connections of one member; a further one closes the oldest of them. Apache's
#: members use one, ours two, and lost ones may not be closed yet.
MEMBER_LINKS_MAX: Final = 16
#: The bytes of unfinished frames over all connections of strangers, and of members; beyond that the
#: connection with the most is closed.
STRANGERS_BYTES_MAX: Final = 24 * 1024**2
MEMBERS_BYTES_MAX: Final = 64 * 1024**2
#: An unfinished frame below this size is not counted against these limits.
_SMALL_BYTES: Final = 64 * 1024


class _Factory(Factory):
    """Makes the protocol of each connection to the port."""

    noisy = False

    def __init__(self, port: PeerPort) -> None:
        self._port = port

    def buildProtocol(self, addr: IAddress | None) -> IncomingLink | None:
        return self._port.connected(addr)


class PeerPort:
    """The connections that other members have made.

    :param allowed: the hosts that may connect.
    :param answer: returns the response to a request of a member; it fails if no response follows.
    :param find_leader: returns the id of the current leader, or an empty text.
    :param peer_lost: called with a member that has lost its connection to this one.
    """

    log = Logger()

    def __init__(
        self, broker: Broker, group: PeerGroup, allowed: AllowedHosts,
        answer: Callable[[Request], Deferred[Response]], find_leader: Callable[[], str],
        peer_lost: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._allowed = allowed
        self._lines = HostLines(broker.steady.now_ms)
        self._requests = PeerRequests(group, answer, find_leader, self._lines)
        self._peer_lost = peer_lost
        self._port: OpenPort | None = None
        #: The connections, the oldest first.
        self._links: dict[IncomingLink, None] = {}

    def start(self, port: int, interface: str | None, *, encrypted: bool) -> None:
        """Listen.

        :raises OSError: when the port cannot be opened.
        :raises SettingsError: when the connections cannot be encrypted as configured.
        """
        self._port = self._broker.host.serve_stream(
            _Factory(self), port, interface, encrypted=encrypted)

    def stop(self) -> Deferred[None] | None:
        """Stop listening, and close all connections."""
        port, self._port = self._port, None
        for link in list(self._links):
            link.end("")
        return None if port is None else port.stop()

    # --- connections

    def connected(self, addr: IAddress | None) -> IncomingLink | None:
        """Make the protocol of a connection; None closes a connection that is not allowed."""
        host, port = getattr(addr, "host", ""), getattr(addr, "port", 0)
        if not self._allowed.allows_host(host):
            self._warn(f"{host}:{port}", f"it is not in {PEERS}")
            return None
        strangers = [link for link in self._links if not link.member and not link.is_over]
        if len(strangers) >= STRANGERS_MAX:
            strangers[0].end("it has sent no request of a member")
        link = IncomingLink(f"{host}:{port}", self)
        self._links[link] = None
        return link

    def frame_arrived(self, link: IncomingLink, frame: Frame) -> None:
        """Answer a frame, at once or later."""
        if not link.is_over:
            was_stranger = not link.member
            self._requests.handle_frame(link, frame)
            if was_stranger and link.member:
                self._look_at_others(link)

    def frames_ended(self) -> None:
        """Pass on the pushes that waited for further ones."""
        self._requests.pass_on_pushes()

    def bytes_arrived(self, link: IncomingLink) -> None:
        """Close the connection with the largest unfinished frame if all take too much memory."""
        if link.pending_bytes < _SMALL_BYTES:
            return
        links = [each for each in self._links if bool(each.member) == bool(link.member)]
        bytes_max = MEMBERS_BYTES_MAX if link.member else STRANGERS_BYTES_MAX
        if sum(each.pending_bytes for each in links) > bytes_max:
            max(links, key=lambda each: each.pending_bytes).end(
                "unfinished requests take too much memory, and its own takes most")

    def link_ended(self, link: IncomingLink, why: str) -> None:
        """Forget a connection."""
        del self._links[link]
        if why:
            self._warn(link.peer, why)
        if link.member and self._port is not None:
            self._peer_lost(link.member)

    def _look_at_others(self, link: IncomingLink) -> None:
        """Limit the connections of one member."""
        same = [each for each in self._links if each.member == link.member and not each.is_over]
        if len(same) > MEMBER_LINKS_MAX:
            same[0].end(f"its member has made {MEMBER_LINKS_MAX} further ones")

    def _warn(self, peer: str, why: str) -> None:
        self._lines.write(self.log.warn, peer,
                          "a connection of {peer} to the port for members is closed: {why}",
                          why=why)
