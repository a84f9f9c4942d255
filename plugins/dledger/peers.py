"""The other members of the group: the port for them, and two connections to each of them.

Votes, heartbeats and transfers have a separate connection, so they never wait for pushes of
entries. Apache's members accept any number of connections, and answer over the one that asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from twistmq.broker.api.wire import split_address
from twistmq.plugins.dledger.outgoing_link import OutgoingLink
from twistmq.plugins.dledger.peer_group import PeerGroup
from twistmq.plugins.dledger.peer_port import PeerPort
from twistmq.plugins.dledger.peer_settings import BIND, TLS, allowed_hosts
from twistmq.raft.messages import Request, Response

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Peers", "connect_group"]


class Peers:
    """The connections of one member; see ``links.GroupLinks``.

    :param answer: returns the response to a request of a member; it fails if no response follows.
    :param peer_gone: called with a member whose host refuses connections.
    :param find_leader: returns the id of the current leader, or an empty text.
    :raises SettingsError: when ``dledger.peers`` contains neither an address nor a network.
    """

    def __init__(
        self, broker: Broker, group: PeerGroup, answer: Callable[[Request], Deferred[Response]],
        peer_gone: Callable[[str], None], find_leader: Callable[[], str],
    ) -> None:
        settings = broker.settings
        self._group = group
        self._interface = settings.text(BIND).strip() or None
        self._is_encrypted = settings.flag(TLS)
        self._answer = answer
        self._port = PeerPort(broker, group, allowed_hosts(settings, group), self._peer_asked,
                              find_leader, self._peer_lost)
        self._links = {
            (member, bulk): OutgoingLink(broker, member, address, is_encrypted=self._is_encrypted,
                                         refused=peer_gone)
            for member, address in group.addresses.items() if group.is_peer(member)
            for bulk in (False, True)}

    def start(self) -> None:
        """Listen for the other members.

        :raises OSError: when the port cannot be opened.
        :raises SettingsError: when the connections cannot be encrypted as configured.
        """
        _, port = split_address(self._group.addresses[self._group.member_id])
        self._port.start(port, self._interface, encrypted=self._is_encrypted)

    def ask(self, peer: str, request: Request, *, bulk: bool) -> Deferred[Response]:
        """Send a request to a member; see ``links.GroupLinks``."""
        return self._links[peer, bulk].ask(request)

    def tick(self, now_ms: int = 0) -> None:
        """Give up requests that are not answered in time; periodic."""
        for link in self._links.values():
            link.tick()

    def rest_ms(self) -> int | None:
        """Return how long :meth:`tick` has nothing to do; see ``links.GroupLinks``."""
        return min((rest_ms for link in self._links.values()
                    if (rest_ms := link.rest_ms()) is not None), default=None)

    def close(self) -> Deferred[None] | None:
        """Close the port and all connections; see ``links.GroupLinks``."""
        for link in self._links.values():
            link.stop()
        return self._port.stop()

    def _peer_asked(self, request: Request) -> Deferred[Response]:
        """Answer a request; its sender runs, so it may be asked at once in turn."""
        for bulk in (False, True):
            if (request.sender, bulk) in self._links:
                self._links[request.sender, bulk].allow_attempt()
        return self._answer(request)

    def _peer_lost(self, member: str) -> None:
        """Find out whether the process of a member that has lost its connection has ended."""
        self._links[member, False].look()


def connect_group(
    broker: Broker, group: PeerGroup, answer: Callable[[Request], Deferred[Response]],
    peer_gone: Callable[[str], None], find_leader: Callable[[], str],
) -> Peers:
    """Open the port of a member; ``Peers`` describes the parameters and errors.

    :raises SettingsError: also when the port cannot be opened.
    """
    peers = Peers(broker, group, answer, peer_gone, find_leader)
    try:
        peers.start()
    except OSError as error:
        raise broker.settings.unavailable(
            BIND, f"the port for members cannot be listened on: {error}") from None
    return peers
