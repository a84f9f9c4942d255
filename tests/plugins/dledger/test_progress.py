"""Timed, popped, transactional and retried messages across a change of the leader.

Their progress counts only as far as the group has agreed: a leader that is cut off works in vain,
and the next leader does the same work once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twisted.logger import capturedLogs

from tests.kernel_case import error_lines
from tests.plugins.dledger.kernels import NAMES, TOPIC, KernelGroup, Machine
from tests.plugins.dledger.test_group_broker import GroupCase
from tests.plugins.pop.case import Popped, popped_of
from tests.plugins.timer.case import shrink_wheel
from tests.transaction.case import COMMIT, Asked, questions
from twistmq.broker.request.client_table import Client
from twistmq.broker.testing.kernel import Peer
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import orderly, pop, retry
from twistmq.plugins.pop.names import REVIVE_GROUP, pop_retry_topic
from twistmq.protocol.bodies import (
    ConsumerData,
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    HeartbeatData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from twistmq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageResponseHeader,
)
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import SYS_TRANSACTION_PREPARED
from twistmq.protocol.topic_names import HALF_TOPIC, OP_HALF_TOPIC
from twistmq.transaction import plugin as transaction
from twistmq.transaction.service import SYSTEM_GROUP

GROUP: Final = "cg"
RETRY: Final = f"%RETRY%{GROUP}"
POP_RETRY: Final = pop_retry_topic(TOPIC, GROUP, False)
REVIVE_TOPIC: Final = "rmq_sys_REVIVE_LOG_DefaultCluster"
INVISIBLE_MS: Final = 5000
#: In this time a leader that is cut off has given up, and its group has elected another one.
ELECTED_SECONDS: Final = 12.0
#: In this time, all members have saved the progress that they have or copied.
SAVED_SECONDS: Final = 12.0


def checkpoint_path(name: str) -> str:
    """Return the path of the checkpoint of a member's ledger."""
    return f"/store/dledger-{name}/checkpoint"


class ProgressCase(GroupCase):
    """A group with every plugin that derives messages from others, and one group of consumers."""

    def make_group(self) -> KernelGroup:
        shrink_wheel(self)
        return KernelGroup(
            self, [("orderly", orderly.Plugin), ("pop", pop.Plugin), ("retry", retry.Plugin),
                   ("transaction", transaction.Plugin)],
            transactionTimeOut="1000", transactionCheckInterval="2000", popFromRetryProbability="0",
            reviveQueueNum="1", transactionOpBatchInterval="100")

    def setUp(self) -> None:
        super().setUp()
        self.leader.kernel.subscription_group.update(SubscriptionGroupConfig(GROUP), {})
        self.group.until(lambda: all(
            GROUP in machine.kernel.subscription_group.table for machine in self.group.alive),
            "the group of consumers")

    def kill_leader(self) -> None:
        """Kill the leader, wait for the next one, and start the old one again."""
        dead = self.leader
        self.group.kill(dead.name)
        self.leader = self.group.elect()
        self.group.start(dead.name)

    def replace_leader(self) -> Machine:
        """Cut off the leader until the group has another one, then connect it again."""
        old = self.leader
        self.leader = self.group.elect(besides=old.name)
        self.group.until(lambda: old.kernel.is_slave, "it stays master", ELECTED_SECONDS)
        self.group.cut.clear()
        return old

    def cut_off_until_it_writes(self) -> None:
        """Cut off the leader, and wait until it has written entries that cannot be committed."""
        log = self.leader.kernel.store.commit_log
        self.group.isolate(self.leader.name)
        end = log.max_offset
        self.group.until(lambda: log.max_offset > end, "it writes nothing", 5.5)

    def checkpoints(self) -> dict[str, bytes]:
        """Return the file of each member that says how far its ledger is committed now."""
        self.group.run(3)
        return {name: self.group.machines[name].disk.read_file(checkpoint_path(name))
                for name in NAMES}

    def start_again(self, old: Mapping[str, bytes]) -> None:
        """Kill all members, and start them with older checkpoints of their ledgers.

        Until a leader tells them what is committed, their progress is beyond the ends of their
        queues.
        """
        self.group.run(SAVED_SECONDS)
        for name in NAMES:
            self.group.kill(name)
        with capturedLogs() as events:
            for name, data in old.items():
                self.group.machines[name].disk.write_file(checkpoint_path(name), data)
                self.group.start(name)
        for machine in self.group.alive:
            self.assertLess(machine.kernel.store.dispatch.offset,
                            machine.kernel.store.commit_log.max_offset)
        self.assertEqual(error_lines(events), [])
        self.leader = self.group.elect()

    def assert_everywhere(self, bodies: list[bytes], topic: str = TOPIC) -> None:
        """Check that all members have exactly these messages, each once."""
        self.group.until(lambda: all(
            len(self.group.bodies(name, topic)) >= len(bodies) for name in NAMES),
            f"all members have {bodies} in {topic}", 30)
        self.group.run(5)
        for name in NAMES:
            self.assertEqual(self.group.bodies(name, topic), bodies)


class TimedTests(ProgressCase):
    """Timed messages."""

    def send_timed(self, delay_ms: int, body: bytes = b"later") -> None:
        reply = self.group.send(self.leader, body, properties={"TIMER_DELAY_MS": str(delay_ms)})
        self.assertEqual((reply.code, reply.remark), (0, None))

    def test_the_next_leader_delivers_at_the_time(self) -> None:
        """The message is delivered once, and not before its time."""
        self.send_timed(20_000)
        self.group.run(3)
        due_ms = self.group.now_ms() + 17_000
        self.kill_leader()
        self.group.until(lambda: self.group.now_ms() >= due_ms - 2000, "time passes", 40)
        self.assertEqual(self.group.bodies(self.leader.name), [])
        self.assert_everywhere([b"later"])

    def test_a_delivery_in_vain_is_made_again(self) -> None:
        """A delivery of the leader that was cut off does not count as progress."""
        self.send_timed(5000)
        self.group.run(3)
        self.cut_off_until_it_writes()
        self.replace_leader()
        self.assert_everywhere([b"later"])

    def test_members_that_start_with_older_checkpoints_enter_nothing_twice(self) -> None:
        """Neither a message that was delivered nor one that waits comes twice."""
        self.send_timed(30_000, b"known")
        old = self.checkpoints()
        self.send_timed(1500, b"soon")
        self.send_timed(20_000, b"late")
        self.assert_everywhere([b"soon"])
        self.start_again(old)
        self.assert_everywhere([b"soon", b"late", b"known"])


class LostTopicTests(ProgressCase):
    """Delayed messages of a topic that the followers have not copied yet."""

    def test_the_next_leader_delivers_and_all_members_keep_the_message(self) -> None:
        """The old leader, which knows the topic, does not delete it with the message."""
        kernel = self.leader.kernel
        kernel.topic_config.update(TopicConfig("New", 1, 1, 6), {})
        kernel.persist()
        reply = self.group.send(self.leader, b"later", "New", {"DELAY": "2"})
        self.assertEqual((reply.code, reply.remark), (0, None))
        self.kill_leader()
        self.assertNotIn("New", self.leader.kernel.topic_config.table)
        self.assert_everywhere([b"later"], "New")
        for machine in self.group.alive:
            self.assertIn("New", machine.kernel.topic_config.table)

    def test_a_topic_that_the_next_leader_never_knew_is_not_deleted(self) -> None:
        """The old leader takes over that leader's table, leads again, and delivers the message."""
        old = self.leader
        old.kernel.topic_config.update(TopicConfig("New", 1, 1, 6), {})
        old.kernel.persist()
        reply = self.group.send(old, b"later", "New", {"DELAY": "3"})
        self.assertEqual((reply.code, reply.remark), (0, None))
        self.kill_leader()
        self.assertIn("New", old.kernel.topic_config.table)
        self.group.until(lambda: "New" not in old.kernel.topic_config.table, "the copy")
        while self.leader is not old:
            self.kill_leader()
            self.group.until(lambda: len(self.group.alive) == len(NAMES), "all members")
        self.assertEqual(self.group.bodies(old.name, "New"), [])
        self.assert_everywhere([b"later"], "New")

    def test_a_topic_that_was_deleted_and_made_again(self) -> None:
        """The next leader has not copied it, and knows only of its deletion."""
        self.send(b"old")
        for kind in ({}, {"DELAY": "3"}, {"TIMER_DELAY_MS": "12000"}):
            self.group.until(lambda: all(
                TOPIC in machine.kernel.topic_config.table for machine in self.group.alive), "copy")
            self.leader.kernel.tables.delete_topic(TOPIC)
            self.group.until(lambda: not any(
                TOPIC in machine.kernel.topic_config.table for machine in self.group.alive), "copy")
            reply = self.group.send(self.leader, b"new", properties=kind)
            self.assertEqual((reply.code, reply.remark), (0, None))
            self.kill_leader()
            self.assertEqual(
                self.group.bodies(self.leader.name), [] if kind else [b"new"], msg=kind)
            self.assert_everywhere([b"new"])


class RetriedTests(ProgressCase):
    """Messages that a consumer has sent back."""

    def send_back(self) -> None:
        self.send(b"a")
        box = self.box(self.leader)
        [message] = box.stored(TOPIC, 0)
        reply = self.group.request(
            self.leader, RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
                delay_level=2, origin_topic=TOPIC, origin_msg_id="0", group=GROUP,
                offset=message.physical_offset))
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))

    def test_the_next_leader_brings_it_back(self) -> None:
        """The message is delivered once."""
        self.send_back()
        self.kill_leader()
        self.assert_everywhere([b"a"], RETRY)

    def test_a_retry_topic_that_a_consumer_made_at_the_followers(self) -> None:
        """Its removal there deletes no topic, so the next leader knows what was delivered."""
        heartbeat = HeartbeatData("client", consumer_data_set=(ConsumerData(GROUP),))
        for machine in self.followers:
            reply = self.box(machine).ask(RequestCode.HEART_BEAT, body=heartbeat.encode())
            self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
            self.assertIn(RETRY, machine.kernel.topic_config.table)
        self.group.until(lambda: not any(
            RETRY in machine.kernel.topic_config.table for machine in self.followers), "the copy")
        self.send_back()
        self.kill_leader()
        self.assert_everywhere([b"a"], RETRY)

    def test_a_retry_in_vain_is_made_again(self) -> None:
        """The progress of delays that the old leader answers and saves names no such delivery."""
        self.send_back()
        self.group.run(2)
        self.cut_off_until_it_writes()
        self.group.run(1)
        self.assertEqual(self.delivered(self.leader), (0, 0))
        self.replace_leader()
        self.assert_everywhere([b"a"], RETRY)
        self.assertEqual(self.delivered(self.leader), (1, 1))

    def test_members_that_start_with_older_checkpoints(self) -> None:
        """A message that was delivered does not come again."""
        old = self.checkpoints()
        self.send_back()
        self.assert_everywhere([b"a"], RETRY)
        self.start_again(old)
        self.assert_everywhere([b"a"], RETRY)
        self.assertEqual(self.delivered(self.leader), (1, 1))

    def delivered(self, machine: Machine) -> tuple[int, int]:
        """Return the progress of the second delay level, as the broker reports it
        and in its file.
        """
        answer = self.box(machine).ask(RequestCode.GET_ALL_DELAY_OFFSET)
        path = "/store/config/delayOffset.json"
        saved = machine.disk.read_file(path) if machine.disk.exists(path) else b"{}"
        tables = [DelayOffsetSerializeWrapper.decode(data).offset_table
                  for data in (answer.body, saved)]
        return tables[0].get(2, 0), tables[1].get(2, 0)


class PoppedTests(ProgressCase):
    """Popped messages, with and without an acknowledgement."""

    def pop(self) -> list[Popped]:
        reply = self.group.request(
            self.leader, RequestCode.POP_MESSAGE, PopMessageRequestHeader(
                consumer_group=GROUP, topic=TOPIC, queue_id=0, max_msg_nums=32,
                invisible_time=INVISIBLE_MS, poll_time=0, born_time=self.group.now_ms(),
                init_mode=0, exp_type="TAG", exp="*", order=False))
        return popped_of(reply, TOPIC, GROUP)

    def ack(self, popped: Popped) -> None:
        reply = self.group.request(
            self.leader, RequestCode.ACK_MESSAGE, AckMessageRequestHeader(
                consumer_group=GROUP, topic=popped.topic, queue_id=popped.queue_id,
                extra_info=popped.receipt, offset=popped.offset))
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))

    def revived(self, machine: Machine) -> int:
        """Return the offset up to which a broker has read the revive topic."""
        answer = self.box(machine).ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        table = ConsumerOffsetSerializeWrapper.decode(answer.body).offset_table
        return table.get(f"{REVIVE_TOPIC}@{REVIVE_GROUP}", {}).get(0, -1)

    def test_the_next_leader_revives_what_was_not_acknowledged(self) -> None:
        """An acknowledged message is not delivered again."""
        for body in (b"kept", b"gone"):
            self.send(body)
        popped = {each.body: each for each in self.pop()}
        self.assertEqual(set(popped), {b"kept", b"gone"})
        self.ack(popped[b"gone"])
        self.kill_leader()
        self.assert_everywhere([b"kept"], POP_RETRY)

    def test_members_that_start_with_older_checkpoints(self) -> None:
        """A message that was revived or acknowledged is not revived again."""
        old = self.checkpoints()
        for body in (b"kept", b"gone"):
            self.send(body)
        popped = {each.body: each for each in self.pop()}
        self.ack(popped[b"gone"])
        self.assert_everywhere([b"kept"], POP_RETRY)
        self.start_again(old)
        self.group.run(2 * INVISIBLE_MS / 1000)
        self.assert_everywhere([b"kept"], POP_RETRY)

    def test_an_acknowledgement_that_the_group_has_not_agreed_on_yet(self) -> None:
        """The message does not come again, although its check point can be read first."""
        self.send(b"a")
        [popped] = self.pop()
        self.ack(popped)
        queues = self.leader.kernel.store.queues
        self.group.until(lambda: queues.max_offset(REVIVE_TOPIC, 0), "the check point")
        self.group.isolate(self.leader.name)
        self.group.run(3)
        self.assertEqual(queues.max_offset(REVIVE_TOPIC, 0), 1)
        self.group.cut.clear()
        self.group.until(lambda: queues.max_offset(REVIVE_TOPIC, 0) == 2, "the acknowledgement")
        self.group.run(3)
        self.assertEqual(self.group.bodies(self.leader.name, POP_RETRY), [])

    def test_a_revival_in_vain_is_made_again(self) -> None:
        """The offset of the revive topic at the old leader does not advance."""
        self.send(b"a")
        self.assertEqual([each.body for each in self.pop()], [b"a"])
        self.group.run(3)
        before = self.revived(self.leader)
        self.cut_off_until_it_writes()
        self.group.run(1)
        self.assertEqual(self.revived(self.leader), before)
        self.replace_leader()
        self.assert_everywhere([b"a"], POP_RETRY)
        self.assertGreater(self.revived(self.leader), before)


class TransactionTests(ProgressCase):
    """Half messages about which the next leader asks the producer."""

    def producer(self) -> Peer:
        """Return a connection of the producer to the leader."""
        box = self.box(self.leader)
        peer = box.peer()
        box.kernel.clients.register_producer("g", Client(
            "producer", peer, "JAVA", 479, self.group.now_ms(), self.group.now_ms()))
        return peer

    def send_half(self) -> SendMessageResponseHeader:
        header = send_header(TOPIC, self.group.now_ms(), properties={
            "TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": "U"})
        header.sys_flag = SYS_TRANSACTION_PREPARED
        reply = self.group.request(self.leader, RequestCode.SEND_MESSAGE_V2, header, b"half")
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        return reply.header(SendMessageResponseHeader)

    def commit(self, half: SendMessageResponseHeader) -> None:
        reply = self.group.request(
            self.leader, RequestCode.END_TRANSACTION, EndTransactionRequestHeader(
                producer_group="g", tran_state_table_offset=half.queue_offset,
                commit_log_offset=parse_offset_message_id(half.msg_id)[2],
                commit_or_rollback=COMMIT, msg_id=half.msg_id))
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))

    def wait_for_question(self, peer: Peer) -> Asked:
        self.group.until(lambda: peer.requests, "the producer is not asked")
        return questions(peer)[0]

    def ended(self, machine: Machine) -> tuple[int, int]:
        """Return the offsets up to which a broker has read half messages and ends."""
        table = machine.kernel.consumer_offset
        return (table.query(SYSTEM_GROUP, HALF_TOPIC, 0),
                table.query(SYSTEM_GROUP, OP_HALF_TOPIC, 0))

    def test_the_next_leader_asks_and_delivers(self) -> None:
        """A commit that answers the question makes the message visible, once."""
        self.send_half()
        self.kill_leader()
        peer = self.producer()
        asked = self.wait_for_question(peer)
        self.assertEqual(asked.message.body, b"half")
        header = asked.header
        reply = self.group.request(
            self.leader, RequestCode.END_TRANSACTION, EndTransactionRequestHeader(
                producer_group="g", tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset, commit_or_rollback=COMMIT,
                from_transaction_check=True, msg_id=header.msg_id or "",
                transaction_id=header.transaction_id))
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        self.assert_everywhere([b"half"])

    def test_an_end_that_the_group_knows_is_not_asked_for_again(self) -> None:
        """The message is visible once, and the producer gets no question."""
        half = self.send_half()
        self.commit(half)
        self.group.run(1)
        self.kill_leader()
        peer = self.producer()
        self.group.run(6)
        self.assertEqual(questions(peer), [])
        self.assert_everywhere([b"half"])

    def test_members_that_start_with_older_checkpoints(self) -> None:
        """The next leader does not ask about a transaction that has ended."""
        old = self.checkpoints()
        self.commit(self.send_half())
        self.assert_everywhere([b"half"])
        self.start_again(old)
        peer = self.producer()
        self.group.run(6)
        self.assertEqual(questions(peer), [])
        self.assert_everywhere([b"half"])

    def test_progress_of_a_leader_that_is_cut_off(self) -> None:
        """The next leader asks about a half message whose copy is not committed."""
        self.send_half()
        self.producer()
        before = self.ended(self.leader)
        self.cut_off_until_it_writes()
        self.group.run(1)
        self.assertEqual(self.ended(self.leader), before)
        self.replace_leader()
        asked = self.wait_for_question(self.producer())
        self.assertEqual(asked.message.body, b"half")
