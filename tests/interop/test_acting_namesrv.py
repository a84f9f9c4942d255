"""A name server and a group whose slaves may act as master: ours sends the same notifications as
Apache's.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
import threading
from typing import Any, Final

from tests.interop.clients import JavaTestCase
from tests.interop.peer import Peer, wait_for_port
from tests.interop.servers import MAIN, free_port
from tests.plugins.ha.pair import wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import (
    BrokerMemberGroup,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import decode_command
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.headers.namesrv import (
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)

MEMBERS: Final = "rmq_sys_SYNC_BROKER_MEMBER_g"
SETTINGS: Final = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
#: How long a notice may take, seconds.
PATIENCE: Final = 30.0


class Notified:
    """A port of a broker that keeps its notifications."""

    def __init__(self, name: str, notices: queue.Queue[tuple[str, int, dict[str, str]]]) -> None:
        self.name = name
        self._notices = notices
        self._port = socket.create_server(("127.0.0.1", free_port()))
        self.address = f"127.0.0.1:{self._port.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._port.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._read, args=(connection,)))
            self._threads[-1].start()

    def _read(self, connection: socket.socket) -> None:
        frames = FrameDecoder()
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                for frame in frames.feed(data):
                    command = decode_command(frame)
                    self._notices.put((self.name, command.code, command.fields()))

    def close(self) -> None:
        self._port.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._port.close()
        for connection, thread in zip(self._connections, self._threads[1:], strict=True):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()


class Group:
    """Three brokers of one name at a name server; ``told`` has its output, with names for
    addresses.
    """

    def __init__(self, case: JavaTestCase, namesrv_port: int) -> None:
        self._case = case
        self._namesrv = f"127.0.0.1:{namesrv_port}"
        self._notices: queue.Queue[tuple[str, int, dict[str, str]]] = queue.Queue()
        self._ports = {number: Notified(f"id{number}", self._notices) for number in range(3)}
        self._clients: dict[int, RawClient] = {}
        self._asking = RawClient(self._namesrv)
        case.addCleanup(self.close)
        self.told: list[Any] = []

    def close(self) -> None:
        for client in (*self._clients.values(), self._asking):
            client.close()
        for port in self._ports.values():
            port.close()

    def _named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): self._named(each) for key, each in value.items()}
        for number, port in self._ports.items():
            if value == port.address:
                return f"id{number}"
        return value

    def register(self, number: int) -> None:
        """Register one of them, over a connection of its own."""
        client = self._clients[number] = RawClient(self._namesrv)
        topics = {name: TopicConfig(name, perm=perm) for name, perm in (("T", 6), (MEMBERS, 1))}
        body = RegisterBrokerBody(TopicConfigSerializeWrapper(topics, DataVersion(0, 7, 1)), [])
        reply = client.request(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader(
            broker_name="g", broker_addr=self._ports[number].address, cluster_name="C",
            ha_server_addr=f"ha{number}", broker_id=number, heartbeat_timeout_millis=60_000,
            enable_acting_master=True), body.encode())
        self.told.append((f"{number} registers", reply.code, self._named(reply.fields())))

    def unregister(self, number: int) -> None:
        reply = self._clients[number].request(
            RequestCode.UNREGISTER_BROKER, UnRegisterBrokerRequestHeader(
                broker_name="g", broker_addr=self._ports[number].address, cluster_name="C",
                broker_id=number))
        self.told.append((f"{number} goes", reply.code))
        self._clients.pop(number).close()

    def cut(self, number: int) -> None:
        """Lose its connection."""
        self._clients.pop(number).close()
        self.told.append(f"{number} is lost")

    def notices(self, count: int) -> None:
        """Record a number of notifications."""
        found = [self._notices.get(timeout=PATIENCE) for _ in range(count)]
        self.told.append(sorted((name, code, sorted(self._named(fields).items()))
                                for name, code, fields in found))

    def routes(self) -> None:
        """Note who is where, as clients and as the brokers see it."""
        for topic in ("T", MEMBERS):
            reply = self._asking.request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
            route = TopicRouteData.decode(reply.body)
            self.told.append((topic, [self._named(each.broker_addrs)
                                      for each in route.broker_datas],
                              [each.perm for each in route.queue_datas]))
        group = self._members()
        self.told.append((group.cluster, group.broker_name, self._named(group.broker_addrs)))

    def _members(self) -> BrokerMemberGroup:
        reply = self._asking.request(
            RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequestHeader(
                cluster_name="C", broker_name="g"))
        group = GetBrokerMemberGroupResponseBody.decode(reply.body).broker_member_group
        assert group is not None
        return group

    def is_forgotten(self, number: int) -> None:
        """Wait until the name server has noticed the loss, of which it tells no broker."""
        wait_until(lambda: number not in self._members().broker_addrs, "it is forgotten")

    def no_more(self) -> None:
        """Check that there are no other notifications."""
        self._case.assertTrue(self._notices.empty(), list(self._notices.queue))


def life(group: Group) -> list[Any]:
    """A group registers, loses its master and its first slave, and gets both again."""
    group.register(2)
    group.routes()
    group.register(1)
    group.notices(1)
    group.register(0)
    group.notices(2)
    group.routes()
    group.unregister(0)
    group.notices(2)
    group.routes()
    group.cut(1)
    group.notices(1)
    group.routes()
    group.register(0)
    group.notices(1)
    group.register(1)
    group.routes()
    group.cut(1)
    group.is_forgotten(1)
    group.cut(0)
    group.notices(1)
    group.no_more()
    return group.told


class ActingNamesrvTests(JavaTestCase):
    """One life of a group, at either name server."""

    def test_notices_routes_and_members(self) -> None:
        """All notifications are equal; the slave with the lowest id acts as master."""
        peer = Peer(self.folder / "peer", namesrv_port=free_port(), heap="256m",
                    namesrv_settings=SETTINGS)
        self.addCleanup(peer.stop_one, "namesrv", kill=True)
        peer.start_namesrv()
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "namesrv", f"listenPort={port}", "bindAddress=127.0.0.1",
             f"kvConfigPath={self.folder}/ours/kvConfig.json", f"log.dir={self.folder}/ours/logs",
             *[f"{name}={value}" for name, value in SETTINGS.items()]],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        wait_for_port(port, process)
        apache = life(Group(self, peer.namesrv_port))
        ours = life(Group(self, port))
        self.assertEqual(ours, apache)
        self.assertIn(("T", [{"0": "id1", "2": "id2"}], [4]), ours)
