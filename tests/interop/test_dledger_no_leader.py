"""A broker whose group has no leader answers as Apache's broker in the same state."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.interop.answers import Answer, ask_all
from tests.interop.clients import JavaTestCase
from tests.interop.kept import kept
from tests.interop.ledger_group import IDS, LedgerGroup
from tests.interop.ledger_members import peers_text
from tests.interop.peer import Peer
from tests.interop.ports import free_port
from tests.interop.questions import Question, heartbeat_q, send_q, topic_q
from tests.interop.servers import Servers, wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import SubscriptionGroupConfig
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError

#: The code and the remark of an answer.
Reply = tuple[int, str]

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
#: The answers of followers that are started again, and hear of no leader. Apache's broker has the
#: role of a master, as before the first leader, and answers pulls of the messages in its log.
AFTER_A_START: Final = {
    # The group and the topic exist.
    **{name: answers for name, answers in BEFORE_THE_FIRST.items()
       if name not in ("commit an offset", "lock")},
    "end of a transaction": ((1, "<fault>"), (11, "a slave does not end transactions")),
    "pull": ((0, "FOUND"), _REJECTED),
    "pull at the end": ((19, "OFFSET_OVERFLOW_ONE"), _REJECTED),
}
#: Apache's broker forgets to set an answer.
AFTER_A_LEADER: Final = {
    "end of a transaction": ((11, "not set any response code"),
                             (11, "a slave does not end transactions")),
}


def client_questions() -> list[Question]:
    """Return requests of every kind that a client sends to a master."""
    code, queue = RequestCode, {"topic": "T", "queueId": "0"}
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
        _pull_q("pull", 500, 0), _pull_q("pull at the end", 500, 4),
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
            # The index of a broker that was killed may name a message twice.
            "topic": "T", "key": "k", "maxNum": "32", "beginTimestamp": "0",
            "endTimestamp": "9999999999999"}),
    ]


def _pull_q(what: str, hold_ms: int, offset: int) -> Question:
    """Return a pull that may be held until a message arrives."""
    return Question(what, RequestCode.PULL_MESSAGE, {
        "consumerGroup": "G", "topic": "T", "queueId": "0", "maxMsgNums": "4", "sysFlag": "6",
        "commitOffset": "0", "suspendTimeoutMillis": str(hold_ms), "subscription": "*",
        "subVersion": "0", "queueOffset": str(offset)})


def differences(
    apache: Mapping[str, Answer], ours: Mapping[str, Answer]
) -> dict[str, tuple[Reply, Reply]]:
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


#: A leader notices after up to 6 s that it has no majority, and a follower that it has no leader.
LOSS_SECONDS: Final = 60.0
#: How long a pull may be held, ms.
_HOLD_MS: Final = 1000
#: How long the pull, and a send that waits for a majority for 2.5 s, may take on a busy machine.
_WAIT_SECONDS: Final = 5.0
DEPOSED, FOLLOWER, RESTARTED = "a deposed leader", "a follower", "a follower after a start"


class LonelyMember:
    """A member that loses the others in several ways.

    ``answers`` has the answers that the member gave in each state, by their questions.
    """

    def __init__(self, group: LedgerGroup, member: str) -> None:
        self.answers: dict[str, dict[str, Answer]] = {}
        #: How long the requests took that wait for a majority and for messages.
        self.seconds: list[float] = []
        self._group, self._member = group, member
        self._address = group.members[member].address
        self._port = int(self._address.rpartition(":")[2])

    @property
    def others(self) -> list[str]:
        """Return the members that are lost."""
        return [member for member in IDS if member != self._member]

    def lose_majority(self) -> None:
        """Let the member lead, and take the majority from it."""
        group = self._group
        group.give_lead(self._member)
        self._prepare(self._member)
        wait_until("the leader takes messages", self._is_accepted, LOSS_SECONDS)
        group.wait_for_equal_logs()
        self._kill_others()
        waiting = {}
        for question in (send_q("without a majority", "Late"), _pull_q("held", _HOLD_MS, 4)):
            begin = time.monotonic()
            waiting |= ask_all(self._port, [question])
            self.seconds.append(time.monotonic() - begin)
        wait_until("the leader gives up", self._is_without_leader, LOSS_SECONDS)
        self.answers[DEPOSED] = waiting | ask_all(self._port, client_questions())

    def lose_leader(self) -> None:
        """Let the member follow another one, and take all others from it; then start it again."""
        group = self._group
        group.start(*self.others)
        leader = group.wait_for_leader()
        if leader == self._member:
            leader = self.others[0]
            group.give_lead(leader)
        # The member may or may not copy the tables of this leader before the leader ends.
        self._prepare(leader)
        group.wait_for_equal_logs()
        self._kill_others()
        wait_until("the follower has no leader", self._is_without_leader, LOSS_SECONDS)
        self.answers[FOLLOWER] = ask_all(self._port, client_questions())
        group.end(self._member)
        group.start(self._member)
        self.answers[RESTARTED] = ask_all(self._port, client_questions())

    def _kill_others(self) -> None:
        for member in self.others:
            self._group.kill(member)

    def _is_without_leader(self) -> bool:
        return not self._group.leader_of(self._member)

    def _prepare(self, member: str) -> None:
        """Give a leader what no log contains: a topic, a group, and an offset."""
        port = int(self._group.members[member].address.rpartition(":")[2])
        answers = ask_all(port, [
            topic_q("T", "T"),
            Question("group", RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {},
                     SubscriptionGroupConfig("G").encode()),
            Question("commit", RequestCode.UPDATE_CONSUMER_OFFSET, {
                "consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "3"})])
        assert not any(answer.code for answer in answers.values()), answers

    def _is_accepted(self) -> bool:
        """Send messages; :returns: whether they are taken."""
        try:
            with RawClient(self._address, 10) as client:
                while client.max_offset("T") < 4:
                    client.send("T", b"x", keys="k")
        except BrokerError:
            return False
        return True


def ask_both(folder: Path, stack: ExitStack) -> tuple[LonelyMember, LonelyMember]:
    """Ask Apache's broker in each state, and then ours."""
    with LedgerGroup(folder, LonelyTests.version, {"n2"}) as group:
        group.start()
        group.wait_for_leader()
        apache, ours = LonelyMember(group, "n0"), LonelyMember(group, "n2")
        apache.lose_majority()
        apache.lose_leader()
        group.start(*apache.others)
        group.wait_for_leader()
        ours.lose_majority()
        ours.lose_leader()
        return apache, ours


class LonelyTests(JavaTestCase):
    """A member of a group of three that has lost the other two: ours is ``n2``."""

    version = "5.5.0"

    def check(self, state: str, expected: Mapping[str, tuple[Reply, Reply]]) -> None:
        """Compare the answers in one state."""
        apache, ours = kept(self, ask_both)
        self.assertEqual(differences(apache.answers[state], ours.answers[state]), expected)

    def test_same_answers_of_a_deposed_leader(self) -> None:
        """Requests that wait when the majority is lost are answered alike, and in time."""
        self.check(DEPOSED, AFTER_A_LEADER)
        _, ours = kept(self, ask_both)
        self.assertLess(max(ours.seconds), _WAIT_SECONDS)

    def test_same_answers_of_a_follower_without_a_leader(self) -> None:
        """It has followed another leader, which ended."""
        self.check(FOLLOWER, AFTER_A_LEADER)

    def test_answers_of_a_follower_that_starts_alone(self) -> None:
        """Apache's broker has the role of a master until it hears of a leader, as a new one has."""
        self.check(RESTARTED, AFTER_A_START)
