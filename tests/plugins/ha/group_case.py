"""A master and a slave of one name that send requests to each other, without sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.trial.unittest import SynchronousTestCase

from tests.kernel_case import run_task
from tests.plugins.logs import copy_log
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import admin, ha, schedule
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, RemotingConnectError
from twistmq.protocol.header import CommandHeader

__all__ = ["COPY", "MASTER", "SLAVE", "GroupCase"]

MASTER, SLAVE = "127.0.0.1:10911", "127.0.0.1:10921"
COPY = "copy the master's tables"


class GroupCase(SynchronousTestCase):
    """Has ``master`` and ``slave``; ``asked`` has the address and the code of each request."""

    plugins: Sequence[tuple[str, object]] = (
        ("admin", admin.Plugin), ("ha", ha.Plugin), ("schedule", schedule.Plugin))
    master_settings: Mapping[str, str] = {}
    slave_settings: Mapping[str, str] = {}

    def setUp(self) -> None:
        self.asked: list[tuple[str, int]] = []
        #: Brokers by address; one that is not here cannot be reached.
        self.servers: dict[str, KernelBox] = {}
        #: Answers by address and code that replace the broker's.
        self.answers: dict[tuple[str, int], RemotingCommand | BrokerError] = {}
        self.members: dict[int, str] | BrokerError = {}
        self.master_disk, self.slave_disk = MemoryDisk(), MemoryDisk()
        self.master = self.start_master()
        self.slave = self.start_slave()
        self.addCleanup(lambda: self.master.stop())
        self.addCleanup(lambda: self.slave.stop())

    def start_master(self) -> KernelBox:
        box = KernelBox(self.plugins, {"listenPort": "10911", **self.master_settings},
                        self.master_disk)
        return self._joined(box, MASTER)

    def start_slave(self) -> KernelBox:
        box = KernelBox(self.plugins, {
            "listenPort": "10921", "brokerRole": "SLAVE", "brokerId": "1", "ha.master": MASTER,
            **self.slave_settings}, self.slave_disk)
        return self._joined(box, SLAVE)

    def _joined(self, box: KernelBox, address: str) -> KernelBox:
        """Let a broker ask the others, and be asked on both of its ports."""
        host, _, port = address.rpartition(":")
        self.servers[address] = self.servers[f"{host}:{int(port) - 2}"] = box
        box.host.ask_server = self.ask_server
        return box

    async def ask_server(
        self, address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
        timeout_ms: int,
    ) -> RemotingCommand:
        self.asked.append((address, code))
        answer = self.answers.get((address, code))
        if isinstance(answer, BrokerError):
            raise answer
        if answer is not None:
            return answer
        if address not in self.servers:
            raise RemotingConnectError(f"cannot connect to {address}")
        box = self.servers[address]
        reply = box.send(box.peer(), code, header, body)
        assert reply is not None, "the reply waits"
        return reply

    async def find_members(self, broker_name: str) -> dict[int, str]:
        if isinstance(self.members, BrokerError):
            raise self.members
        return self.members

    # --- what happens

    def send(self, topic: str = "T", queue_id: int = 0, body: bytes = b"x", **properties: str
             ) -> None:
        """Send a message to the master."""
        header = send_header(topic, self.master.now_ms, queue_id=queue_id, properties=properties)
        reply = self.master.ask(RequestCode.SEND_MESSAGE_V2, header, body)
        self.assertEqual((reply.code, reply.remark), (0, None))

    def copy_log(self) -> None:
        """Give the slave the bytes of the log that it lacks, and make them readable."""
        copy_log(self.slave, self.master)

    def pass_time(self, elapsed_ms: int = 5000) -> None:
        """Let time pass on the slave, whose tables are copied meanwhile."""
        for _ in range(elapsed_ms // 250):
            self.master.now_ms += 250
            self.slave.now_ms += 250
            run_task(self.slave, COPY)
