"""A broker whose group has no leader answers as Apache's broker in the same state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.interop.answers import Answer, ask_all
from tests.interop.clients import JavaTestCase
from tests.interop.ledger_group import IDS, LedgerGroup
from tests.interop.ledger_members import peers_text
from tests.interop.peer import Peer
from tests.interop.ports import free_port
from tests.interop.questions import Question, heartbeat_q, send_q
from tests.interop.servers import Servers, wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import SubscriptionGroupConfig
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError

_ALIKE: Final = ("brokerName=broker-a", "enablePropertyFilter=false", "traceTopicEnable=false",
                 "mappedFileSizeCommitLog=1048576", "enableDLegerCommitLog=true",
                 "dLegerGroup=G0", "dLegerSelfId=n0")

_REJECTED: Final = 2, "[REJECTREQUEST]system busy, start flow control for a while"
_BUSY: Final = 2, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
#: The answers of Apache's broker and of ours before their groups had a leader: code and remark.
BEFORE_THE_FIRST: Final = {
    **dict.fromkeys(("SEND_MESSAGE_V2 a message", "SEND_MESSAGE_V2 a delayed one",
                     "SEND_MESSAGE_V2 to a new topic"), (_BUSY, _REJECTED)),
    "send back": ((1, "no master available along with 127.0.0.1"), _REJECTED),
    "end of a transaction": ((1, "Find prepared transaction message failed"),
                             (11, "a slave does not end transactions")),
    "pull": ((19, "NO_MESSAGE_IN_QUEUE"), _REJECTED),
    "pull at the end": ((21, "NO_MESSAGE_IN_QUEUE"), _REJECTED),
    "commit an offset": ((0, ""), (26, "Group G not exist!")),
    # Ours locks no queue.
    "lock": ((0, ""), (0, "")),
}
#: Apache's broker forgets to set an answer.
AFTER_A_LEADER: Final = {
    "end of a transaction": ((11, "not set any response code"),
                             (11, "a slave does not end transactions")),
}


def client_questions() -> list[Question]:
    """Return requests of every kind that a client sends to a master."""
    code, queue = RequestCode, {"topic": "T", "queueId": "0"}
    pull = {"consumerGroup": "G", **queue, "maxMsgNums": "4", "sysFlag": "6", "commitOffset": "0",
            "suspendTimeoutMillis": "500", "subscription": "*", "subVersion": "0"}
    locks = {"consumerGroup": "G", "clientId": "asker", "mqSet": [
        {"topic": "T", "brokerName": "group", "queueId": 0}]}
    return [
        send_q("a message", "T"), send_q("a delayed one", "T", i="DELAY\x013"),
        send_q("to a new topic", "New"),
        Question("send back", code.CONSUMER_SEND_MSG_BACK, {
            "offset": "48", "group": "G", "delayLevel": "0", "originMsgId": "x",
            "originTopic": "T", "unitMode": "false", "maxReconsumeTimes": "16"}),
        Question("end of a transaction", code.END_TRANSACTION, {
            "producerGroup": "P", "tranStateTableOffset": "0", "commitLogOffset": "48",
            "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "x"}),
        Question("pull", code.PULL_MESSAGE, {**pull, "queueOffset": "0"}),
        Question("pull at the end", code.PULL_MESSAGE, {**pull, "queueOffset": "4"}),
        Question("query an offset", code.QUERY_CONSUMER_OFFSET, {"consumerGroup": "G", **queue}),
        Question("commit an offset", code.UPDATE_CONSUMER_OFFSET, {
            "consumerGroup": "G", **queue, "commitOffset": "3"}),
        Question("lock", code.LOCK_BATCH_MQ, {}, json.dumps(locks).encode()),
        Question("unlock", code.UNLOCK_BATCH_MQ, {}, json.dumps(locks).encode()),
        heartbeat_q("of a member", "G", topics=("T",)),
        Question("members", code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}),
        Question("leave", code.UNREGISTER_CLIENT, {"clientID": "asker", "consumerGroup": "G"}),
        Question("max offset", code.GET_MAX_OFFSET, queue),
        Question("min offset", code.GET_MIN_OFFSET, queue),
        Question("search", code.SEARCH_OFFSET_BY_TIMESTAMP, {**queue, "timestamp": "0"}),
        Question("view", code.VIEW_MESSAGE_BY_ID, {"offset": "48"}),
        Question("query", code.QUERY_MESSAGE, {
            "topic": "T", "key": "k", "maxNum": "4", "beginTimestamp": "0",
            "endTimestamp": "9999999999999"}),
    ]


def differences(
    apache: Mapping[str, Answer], ours: Mapping[str, Answer]
) -> dict[str, tuple[tuple[int, str], tuple[int, str]]]:
    """Return code and remark of both answers to each question whose answers differ."""
    return {name: ((theirs.code, theirs.remark), (ours[name].code, ours[name].remark))
            for name, theirs in apache.items() if _same(theirs) != _same(ours[name])}


def _same(answer: Answer) -> Answer:
    """Return an answer without the place up to which the index is complete."""
    return replace(answer, fields="") if "indexLastUpdate" in answer.fields else answer


def start(folder: Path, stack: ExitStack) -> tuple[int, int]:
    """Start a member of each kind without its peers; the ports of Apache's and ours."""
    def settings() -> tuple[str, ...]:
        peers = peers_text({member: free_port() for member in ("n0", "n1", "n2")})
        return (*_ALIKE, f"dLegerPeers={peers}")

    peer = Peer(folder / "peer", "5.5.0", broker_port=free_port(), heap="512m",
                with_namesrv=False, settings={
                    "namesrvAddr": "", **dict(pair.split("=", 1) for pair in settings())})
    stack.callback(peer.stop, kill=True)
    peer.start()
    ours = Servers(folder / "ours", "brokerIP1=127.0.0.1", *settings())
    stack.callback(ours.stop)
    ours.start()
    return peer.broker_port, ours.broker_port


class FreshTests(JavaTestCase):
    """Brokers that start without the other members of their groups."""

    version = "5.5.0"

    def test_answers_before_the_first_leader(self) -> None:
        """Apache's broker has the role of a master until then, and ours that of a slave.

        Both take no message, by the same code. Ours also refuses what a slave does not do, because
        the first leader would not know of it.
        """
        with ExitStack() as stack:
            apache, ours = (ask_all(port, client_questions())
                            for port in start(self.folder, stack))
        self.assertEqual(differences(apache, ours), BEFORE_THE_FIRST)


#: A leader notices after up to 6 s that it has no majority.
LOSS_SECONDS: Final = 60.0


class DeposedTests(JavaTestCase):
    """A broker that has led its group, and lost the other members: ours is ``n2``."""

    version = "5.5.0"

    def test_same_answers_of_a_deposed_leader(self) -> None:
        """Also the send that waits when the majority is lost is answered alike."""
        with LedgerGroup(self.folder, self.version, {"n2"}) as group:
            group.start()
            group.wait_for_leader()
            apache = self.ask_deposed(group, "n0")
            group.start("n1", "n2")
            ours = self.ask_deposed(group, "n2")
        self.assertEqual(differences(apache, ours), AFTER_A_LEADER)

    def ask_deposed(self, group: LedgerGroup, leader: str) -> dict[str, Answer]:
        """Take the majority from a leader, and ask it; :returns: its answers."""
        group.give_lead(leader)
        address = group.members[leader].address
        wait_until("the leader takes messages", lambda: self.is_accepted(address), LOSS_SECONDS)
        group.wait_for_equal_logs()
        port = int(address.rpartition(":")[2])
        ask_all(port, [Question("group", RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {},
                                SubscriptionGroupConfig("G").encode()),
                       Question("commit", RequestCode.UPDATE_CONSUMER_OFFSET, {
            "consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "2"})])
        for member in IDS:
            if member != leader:
                group.kill(member)
        answers = ask_all(port, [send_q("without a majority", "Late")])
        wait_until("the leader gives up", lambda: not group.leader_of(leader), LOSS_SECONDS)
        return answers | ask_all(port, client_questions())

    def is_accepted(self, address: str) -> bool:
        """Send messages; :returns: whether they are taken."""
        try:
            with RawClient(address, 10) as client:
                while client.max_offset("T") < 4:
                    client.send("T", b"x", keys="k")
        except BrokerError:
            return False
        return True
