"""A member that reads from a slave, because the master suggests it or is down."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import NAMESRV, Answer, routes
from tests.client.core.group_box import BROKER, GroupBox, GroupBroker
from twistmq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

SLAVE = "10.0.0.3:10911"


class SlaveReadTests(SynchronousTestCase):
    """A queue of 200 messages at a master and its slave.

    The master suggests ``suggested`` with each message, one message a pull; the slave goes on
    suggesting itself.
    """

    def setUp(self) -> None:
        """Make both, and a member that is not started."""
        self.broker = GroupBroker(queues=1)
        for number in range(200):
            self.broker.put("T", 0, b"%d" % number)
        self.suggested = 1
        self.is_slave_silent = False
        #: The broker of each pull, by its id.
        self.pulls: list[int] = []
        self.box = GroupBox(self.broker, pull_count=1)
        self.box.servers[BROKER] = lambda command: self.answer(0, self.suggested, command)
        self.box.servers[SLAVE] = lambda command: self.answer(1, 1, command)
        self.route(BROKER, SLAVE)

    def route(self, *addresses: str) -> None:
        """Let the name server know these brokers, by id."""
        ids = {0: BROKER, 1: SLAVE}
        route = TopicRouteData(
            queue_datas=[QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6)],
            broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={
                number: address for number, address in ids.items() if address in addresses})])
        self.box.servers[NAMESRV] = lambda command: routes({"T": route})(command)

    def answer(self, broker_id: int, suggested: int, command: RemotingCommand) -> Answer:
        """Answer each pull with one message and a suggested broker."""
        if command.code != RequestCode.PULL_MESSAGE:
            return self.broker(command)
        self.pulls.append(broker_id)
        if broker_id and self.is_slave_silent:
            return None
        offset = command.header(PullMessageRequestHeader).queue_offset
        records = self.broker.records["T", 0]
        if offset == len(records):
            return None
        return (ResponseCode.SUCCESS, PullMessageResponseHeader(
            suggested, offset + 1, 0, len(records)), records[offset], None)

    def taken(self) -> list[int]:
        """Take a message, so that the member continues to pull."""
        self.box.advance(200)
        return self.box.take_all()

    def test_a_suggested_slave_is_read(self) -> None:
        """The first answer of the master suggests the slave, and the member stays there."""
        self.box.start()
        self.assertEqual(self.taken(), list(range(200)))
        self.assertEqual((self.pulls[0], set(self.pulls[1:])), (0, {1}))

    def test_a_member_stays_with_a_master_that_suggests_itself(self) -> None:
        """The slave gets no pull."""
        self.suggested = 0
        self.box.start()
        self.assertEqual(self.taken(), list(range(200)))
        self.assertEqual(set(self.pulls), {0})

    def test_without_a_master_the_slave_is_read(self) -> None:
        """The name server knows only the slave."""
        self.route(SLAVE)
        del self.box.servers[BROKER]
        self.box.start()
        self.assertEqual(self.taken(), list(range(200)))
        self.assertEqual(set(self.pulls), {1})

    def test_a_slave_that_is_gone_is_left(self) -> None:
        """The master is asked a second later, and each of its answers suggests the slave again."""
        del self.box.servers[SLAVE]
        self.box.start()
        self.box.advance(3_000)
        found = self.taken()
        self.assertEqual(found, list(range(len(found))))
        self.assertGreater(len(found), 2)
        self.assertEqual(set(self.pulls), {0})

    def test_a_slave_that_does_not_answer_is_left(self) -> None:
        """The rest is read from the master after it has stopped suggesting the slave."""
        self.is_slave_silent = True
        self.box.start()
        self.box.advance(1_000)
        self.assertEqual((self.pulls[0], set(self.pulls[1:])), (0, {1}))
        self.pulls.clear()
        self.suggested = 0
        self.box.advance(32_000)
        self.assertEqual(self.taken(), list(range(200)))
        self.assertEqual(set(self.pulls), {0})
