"""A cluster in memory whose brokers are the three members of one group.

    cluster = GroupCluster(seed=7)
    cluster.elect()
    cluster.create_topic("T", 2)
    cluster.producer(await_master=True).send("T", b"paid")
    cluster.kill_broker("n0")

The clients, their connections and the name server are those of ``MemoryCluster``, and the members
are whole brokers on disks that may lose power. The links between the members, and those from
clients to members, may be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tests.plugins.dledger.kernels import NAMES, SETTINGS, Answer, group_plugin
from tests.plugins.dledger.member_links import MemberLinks
from twistmq.broker.api import Broker
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.client.core.connection.engine import Connect
from twistmq.client.testing import MemoryClient, MemoryCluster
from twistmq.client.testing.network import Pipe
from twistmq.client.testing.servers import MemoryBroker
from twistmq.plugins import admin, orderly, pop, retry, schedule, timer
from twistmq.plugins.dledger.group_broker import GroupBroker
from twistmq.plugins.dledger.node import GroupNode
from twistmq.plugins.dledger.peer_group import PeerGroup
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.command import RemotingCommand, decode_command
from twistmq.protocol.errors import RemotingError
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.header import CommandHeader
from twistmq.raft.messages import Request, Response

__all__ = ["BROKER_NAME", "GroupCluster", "MemberServer"]

#: The name of all members.
BROKER_NAME: Final = "broker-a"
#: How often the members run their periodic tasks, ms.
_TASKS_MS: Final = 200
_ELECTED_MS: Final = 30_000
_TABLES_MS: Final = 10_000
#: The channel by which members ask each other; those of clients have small numbers.
_PEER_CHANNEL: Final = 1 << 30


class _Timers:
    """The timers of one life of a broker: none runs after its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_over = False

    def callLater(self, delay: float, run: Callable[[], object]) -> Any:
        return self._clock.callLater(delay, self._run, run)

    def _run(self, run: Callable[[], object]) -> None:
        if not self.is_over:
            run()


class _Links:
    """The links of one life of a member, see ``GroupLinks``."""

    def __init__(self, server: MemberServer, links: MemberLinks) -> None:
        self._server = server
        self._links = links

    def ask(self, peer: str, request: Request, *, bulk: bool) -> Deferred[Response]:
        return self._links.ask(self._server.member, peer, request)

    def rest_ms(self) -> int | None:
        """Return None, because ``tick`` never has anything to do here."""
        return None

    def tick(self, now_ms: int = 0) -> None:
        """Each request ends by itself in this network, so a tick does nothing."""

    def close(self) -> None:
        self._server.answer = None


class _MemberChannel(Peer):
    """The connection by which a member asks another one."""

    def __init__(self) -> None:
        super().__init__(_PEER_CHANNEL, 40_911)
        self.replied: Deferred[RemotingCommand] = Deferred()

    def write(self, data: bytes) -> None:
        if not self.replied.called:
            self.replied.callback(decode_command(FrameDecoder().feed(data)[0]))


class MemberServer(MemoryBroker):
    """A member of the group as a server of the cluster."""

    def __init__(
        self, cluster: GroupCluster, member: str, address: str, seed: int,
        settings: Mapping[str, str],
    ) -> None:
        self.member = member
        #: Counts the starts.
        self.lives = 0
        self.answer: Answer | None = None
        self.peer_gone: Callable[[str], None] | None = None
        self._cluster = cluster
        self._timers = _Timers(cluster.clock)
        super().__init__(
            cluster.clock, BROKER_NAME, address, cluster.name_server, cluster.wall_ms,
            {**SETTINGS, "dLegerSelfId": member, **settings}, seed,
            disk=MemoryDisk() if cluster.has_power else PowerLossDisk())

    # --- life

    def _make_box(self) -> KernelBox:
        cluster = self._cluster
        self._timers = _Timers(cluster.clock)
        self.lives += 1

        def connect(
            broker: Broker, group: PeerGroup, answer: Answer, peer_gone: Callable[[str], None],
            find_leader: Callable[[], str],
        ) -> _Links:
            host: Any = broker.host
            host.find_members, host.ask_server = self._find_members, self._ask_server
            self.answer, self.peer_gone = answer, peer_gone
            return _Links(self, cluster.links)

        plugin = group_plugin(self._timers, connect, cluster.chance.random)
        return KernelBox(
            [("admin", admin.Plugin), ("dledger", plugin), ("orderly", orderly.Plugin),
             ("retry", retry.Plugin), ("schedule", schedule.Plugin), ("timer", timer.Plugin),
             ("pop", pop.Plugin)],
            self._settings, self._disk, clock=self._steady_ms)

    def start(self) -> None:
        """Start with the files on the disk."""
        super().start()
        self.box.kernel.random.seed(self._seed + self.lives)

    def kill(self) -> None:
        """End at once; the other members find that the port is closed."""
        self._end()
        super().kill()

    def lose_power(self) -> None:
        """End at once; what was not synced may be lost."""
        self.kill()
        assert isinstance(self._disk, PowerLossDisk)
        self._disk.crash(self._cluster.chance)

    def _end(self) -> None:
        self._timers.is_over = True
        self.answer = None
        self.node._runs = False
        self.box.kernel.store.close()
        for other in self._cluster.members.values():
            if other.is_up and other is not self:
                assert other.peer_gone is not None
                self._reactor.callLater(0.001, other.peer_gone, self.member)

    @property
    def node(self) -> GroupNode:
        """The driver of the member."""
        node = self.box.plugin(GroupBroker).node
        assert node is not None
        return node

    @property
    def is_master(self) -> bool:
        """Whether it runs, and takes messages."""
        return self.is_up and not self.box.kernel.is_slave

    def _task_failed(self, failure: Failure) -> None:
        if not failure.check(RemotingError):
            self._cluster.failures.append(failure.value)

    # --- what the plugin asks for

    async def _find_members(self, broker_name: str) -> dict[int, str]:
        group = self._names.server.routes.tables.brokers.get(broker_name)
        return {} if group is None else dict(group.broker_addrs)

    async def _ask_server(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        cut = self._cluster.links.cut
        for other in self._cluster.members.values():
            if other.address == address and other.is_up and not (
                    {(self.member, other.member), (other.member, self.member)} & cut):
                return await self._reply_of(other, code, header, body, timeout_ms)
        raise RemotingError(f"{address} does not answer")

    async def _reply_of(
        self, other: MemberServer, code: int, header: CommandHeader | None, body: bytes,
        timeout_ms: int,
    ) -> RemotingCommand:
        """Ask another member; its reply may come later."""
        channel = _MemberChannel()
        reply = other.box.send(channel, code, header, body)
        if reply is None:
            timer = self._reactor.callLater(timeout_ms / 1000, channel.replied.errback,
                                            RemotingError("no answer in time"))
            reply = await channel.replied
            timer.cancel()
        return reply


class _ClientPipe(Pipe):
    """A connection of a client that may be cut without a notice."""

    def __init__(self, cluster: GroupCluster, client: MemoryClient, effect: Connect,
                 server: MemberServer | None) -> None:
        self._cluster = cluster
        super().__init__(client, effect.number, effect.address,
                         server or cluster.server(effect.address), cluster.faults,
                         cluster.call_later)
        #: Whether bytes were lost, so that the connection cannot go on.
        self.has_lost = False

    @property
    def _is_cut(self) -> bool:
        if (self.client.ip, self.address) in self._cluster.client_cuts:
            self.has_lost = True
            return True
        return False

    def _open(self) -> None:
        if not self._is_cut:
            super()._open()

    def to_server(self, data: bytes) -> None:
        if not (self._is_cut or self.has_lost):
            super().to_server(data)

    def _receive(self, data: bytes) -> None:
        if not (self._is_cut or self.has_lost):
            super()._receive(data)


class GroupCluster(MemoryCluster):
    """A group of three brokers, a name server and clients.

    :param seed: the seed of all random choices.
    :param settings: the settings of the members, texts by name.
    :param has_power: whether the members never lose their power, which makes their disks faster.
    """

    def __init__(self, seed: int = 0, settings: Mapping[str, str] | None = None, *,
                 has_power: bool = False) -> None:
        self.has_power = has_power
        self.members: dict[str, MemberServer] = {}
        #: The errors of periodic tasks of members.
        self.failures: list[BaseException] = []
        #: The cut links from clients to members, (ip, address).
        self.client_cuts: set[tuple[str, str]] = set()
        super().__init__(seed, len(NAMES), settings)
        self.call_later(_TASKS_MS, self._run_tasks)

    def _add_broker(self, number: int, seed: int, settings: Mapping[str, str], pop: bool) -> None:
        if not self.members:
            self.links = MemberLinks(
                lambda: self.clock, self.chance, lambda name: self.members[name].answer)
        member = NAMES[number]
        self.brokers[member] = self.members[member] = MemberServer(
            self, member, f"10.0.0.{number + 1}:10911", seed, settings)

    @property
    def clock(self) -> Clock:
        """The clock of the servers."""
        return self._reactor

    def wall_ms(self) -> int:
        """Unix ms."""
        return self._steady_ms()

    def _run_tasks(self) -> None:
        for server in self.members.values():
            server.tick()
        self.call_later(_TASKS_MS, self._run_tasks)

    # --- the group

    @property
    def alive(self) -> list[MemberServer]:
        """The members that run."""
        return [server for server in self.members.values() if server.is_up]

    @property
    def masters(self) -> list[MemberServer]:
        """The members that take messages."""
        return [server for server in self.members.values() if server.is_master]

    def elect(self) -> MemberServer:
        """Wait for a master."""
        self.wait_for(lambda: bool(self.masters), _ELECTED_MS)
        return self.masters[0]

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic at the master, and wait until all members have it."""
        kernel = self.elect().box.kernel
        kernel.topic_config.update(TopicConfig(topic, queues, queues, 6), {})
        kernel.topics_changed()
        self.wait_for(lambda: all(
            topic in server.box.kernel.topic_config.table for server in self.alive), _TABLES_MS)

    @property
    def is_whole(self) -> bool:
        """Whether all members run, have the same entries, and can read all of them."""
        stores = [server.box.kernel.store for server in self.alive]
        ends = {store.commit_log.max_offset for store in stores}
        return (len(stores) == len(NAMES) and len(self.masters) == 1 and len(ends) == 1
                and all(store.dispatch.offset in ends for store in stores))

    # --- faults

    def lose_power(self, name: str) -> None:
        """End a member like a host that loses its power."""
        server = self.members[name]
        server.lose_power()
        for client in self.clients:
            client.cut(server.address)

    def isolate(self, name: str) -> None:
        """Cut the links of a member to the other members."""
        self.links.cut |= {pair for other in NAMES for pair in ((name, other), (other, name))}

    def cut_client(self, client: MemoryClient, address: str) -> None:
        """Lose all bytes between a client and a member, in silence."""
        self.client_cuts.add((client.ip, address))

    def heal(self) -> None:
        """Repair all links; connections that have lost bytes are reset."""
        self.links.heal()
        self.client_cuts.clear()
        self.faults.delay_ms, self.faults.reorders = 0.0, False
        for client in self.clients:
            for pipe in list(client.pipes.values()):
                if isinstance(pipe, _ClientPipe) and pipe.has_lost:
                    pipe.cut()

    def server(self, address: str) -> Any:
        """Return the server at an address; None: there is none."""
        return self._servers.get(address)

    def connect(self, client: MemoryClient, effect: Connect) -> Pipe:
        """Begin a connection of a client."""
        return _ClientPipe(self, client, effect, None)
