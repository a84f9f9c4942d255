"""The requests POP_MESSAGE and PEEK_MESSAGE."""

from __future__ import annotations

import json

from tests.plugins.pop.case import INVISIBLE_MS, RETRY_TOPIC, REVIVE_TOPIC, PopTestCase, popped_of
from twistmq.broker import hookimpl
from twistmq.broker.request.consume_context import ConsumeContext
from twistmq.broker.testing.raw_client import records_of
from twistmq.plugins.pop.names import pop_retry_topic
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.headers.pop import PeekMessageRequestHeader, PopMessageResponseHeader
from twistmq.protocol.topic_names import TIMER_TOPIC


class RollBackTests(PopTestCase):
    """The setting POP_ROLLBACK."""

    def test_is_done(self) -> None:
        """The popped message is in the timer topic and in the revive topic, before and after."""
        self.send(b"x")
        self.pop()
        before = [each.body for each in self.stored(TIMER_TOPIC)]
        reply = self.box.ask(RequestCode.POP_ROLLBACK)
        self.assertEqual((reply.code, reply.remark, reply.body), (ResponseCode.SUCCESS, None, b""))
        self.assertEqual([each.body for each in self.stored(TIMER_TOPIC)], before)
        self.assertEqual(len(before), 1)


class PopTests(PopTestCase):
    """The messages that a pop returns."""

    def test_all_queues(self) -> None:
        """All messages of all queues are returned, and none is returned twice."""
        bodies = self.send_some(8)
        popped = self.pop()
        self.assertEqual(sorted(each.body for each in popped), bodies)
        self.assertEqual(self.pop(), [])

    def test_one_queue(self) -> None:
        """A pop of one queue returns the requested number; the remaining messages are counted."""
        self.send_some(8)
        reply = self.ask_pop(1, count=3)
        self.assertEqual([each.body for each in popped_of(reply)], [b"1", b"3", b"5"])
        self.assertEqual(reply.header(PopMessageResponseHeader).rest_num, 1)
        self.assertEqual([each.body for each in self.pop(1)], [b"7"])

    def test_groups_do_not_share(self) -> None:
        """Each group gets every message."""
        bodies = self.send_some(3, 1)
        for group in ("g", "other"):
            self.assertEqual([each.body for each in self.pop(group=group)], bodies)

    def test_the_reply_header_equals_that_of_5_3_3(self) -> None:
        """The header has the fields that an acknowledgement needs, as in 5.3.3."""
        self.send_some(4)
        header = self.ask_pop().header(PopMessageResponseHeader)
        self.assertEqual(header.pop_time, self.box.now_ms)
        self.assertEqual(header.invisible_time, INVISIBLE_MS)
        self.assertIn(header.revive_qid, range(8))
        assert header.start_offset_info is not None and header.msg_offset_info is not None
        self.assertEqual(sorted(header.start_offset_info.split(";")), ["0 0 0", "0 1 0"])
        self.assertEqual(sorted(header.msg_offset_info.split(";")), ["0 0 0,1", "0 1 0,1"])
        self.assertIsNone(header.order_count_info)

    def test_check_point(self) -> None:
        """A check point for the popped messages becomes due one second before their time."""
        self.send(b"x")
        self.send(b"y")
        self.pop()
        [waiting] = self.stored(TIMER_TOPIC)
        properties = waiting.properties_map()
        self.assertEqual(json.loads(waiting.body), {
            "bm": 0, "bn": "broker-a", "c": "g", "d": [0, 1], "it": INVISIBLE_MS, "n": 2,
            "pt": self.box.now_ms, "q": 0, "reviveTime": self.box.now_ms + INVISIBLE_MS, "ro": 0,
            "so": 0, "t": "T", "le": waiting.physical_offset})
        self.assertEqual(properties["TAGS"], "ck")
        self.assertEqual(properties["REAL_TOPIC"], REVIVE_TOPIC)
        self.assertEqual(properties["TIMER_DELIVER_MS"],
                         str(self.box.now_ms + INVISIBLE_MS - 1000))
        self.assertEqual(properties["UNIQ_KEY"], f"T@0@0@g@{self.box.now_ms}@broker-a@ck")

    def test_revive_queues_in_turn(self) -> None:
        """Check points are spread over the revive queues."""
        self.send_some(16, 1)
        queues = {self.ask_pop(count=1).header(PopMessageResponseHeader).revive_qid
                  for _ in range(16)}
        self.assertEqual(queues, set(range(8)))

    def test_where_a_group_begins(self) -> None:
        """The group begins at the oldest message, or at the last one if that is not in memory."""
        self.send_some(4, 1)
        self.assertEqual(len(self.pop(group="oldest", init=0)), 4)
        self.assertEqual(len(self.pop(group="in_memory", init=1)), 4)
        self.restart(initPopOffsetByCheckMsgInMem="false")
        self.assertEqual([each.body for each in self.pop(group="newest", init=1)], [b"3"])
        self.assertEqual(self.offset(group="newest"), 3)

    def test_only_messages_with_the_tags_come(self) -> None:
        """Only messages with the requested tags are returned; others are skipped for good."""
        for number in range(6):
            self.send(b"%d" % number, tag="ab"[number % 2])
        popped = self.pop(expression="b || c")
        self.assertEqual([each.body for each in popped], [b"1", b"3", b"5"])
        self.pass_time(500)
        self.assertEqual(self.offset(), 6)

    def test_nothing_wanted(self) -> None:
        """The consumer offset passes messages that the filter excludes."""
        for _ in range(3):
            self.send(b"x", tag="a")
        self.assertEqual(self.pop(expression="b"), [])
        self.turn()
        self.assertEqual(self.offset(), 3)

    def test_wrong_expression(self) -> None:
        """An invalid expression is refused."""
        self.send(b"x")
        self.assertEqual(self.ask_pop(expression="||").code,
                         ResponseCode.SUBSCRIPTION_PARSE_FAILED)

    def test_refusals_have_apaches_words(self) -> None:
        """Each refusal has the remark of Apache's broker."""
        self.send(b"x")
        for how, code, words in (
            ({"count": 33}, ResponseCode.INVALID_PARAMETER, "pop message's num is greater than 32"),
            ({"topic": "no"}, ResponseCode.TOPIC_NOT_EXIST, "topic[no] not exist"),
            ({"queue_id": 99}, ResponseCode.INVALID_PARAMETER, "queueId[99] is illegal"),
        ):
            reply = self.ask_pop(**how)
            self.assertEqual(reply.code, code, msg=words)
            self.assertIn(words, reply.remark or "")

    def test_batch_topic(self) -> None:
        """Batches cannot be acknowledged message by message."""
        self.box.kernel.topic_config.update(
            TopicConfig("B", 1, 1, 6), {"+queue.type": "BatchCQ"})
        reply = self.ask_pop(topic="B")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("batch queues", reply.remark or "")

    def test_too_late(self) -> None:
        """A request whose client has given up is not served."""
        self.send(b"x")
        header = self.pop_header()
        self.box.now_ms += 501
        self.assertEqual(self.box.ask(RequestCode.POP_MESSAGE, header).code,
                         ResponseCode.POLLING_TIMEOUT)

    def test_without_timer(self) -> None:
        """Without a timer no message could be revived, so none is returned."""
        self.send(b"x")
        self.restart(timerWheelEnable="false")
        reply = self.ask_pop()
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("timerWheelEnable is false", reply.remark or "")

    def test_no_check_point_no_message(self) -> None:
        """If the check point is refused, no message is returned; Apache's broker returns it."""
        self.send(b"x")
        reply = self.ask_pop(invisible_ms=4 * 86_400_000)
        self.assertEqual(reply.code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertEqual([each.body for each in self.pop()], [b"x"])

    def test_full_disk(self) -> None:
        """If the check point cannot be stored, no message is returned."""
        self.send(b"x")
        self.box.kernel.store.log_retention.disk_full = True
        self.assertEqual(self.ask_pop().code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.box.kernel.store.log_retention.disk_full = False
        self.assertEqual([each.body for each in self.pop()], [b"x"])

    def test_offset_follows_durable_check_points(self) -> None:
        """The consumer offset does not advance until the check point is durable."""
        self.send_some(2, 1)
        self.pop()
        self.assertEqual(self.offset(), 0)
        self.pass_time(1000)
        self.assertEqual(self.offset(), 2)

    def test_reset_offset(self) -> None:
        """An offset that an administrator sets holds for the next pop."""
        self.send_some(4, 1)
        self.pop()
        self.box.kernel.consumer_offset.reset("g", "T", 0, 1)
        self.turn()
        self.assertEqual([each.body for each in self.pop()], [b"1", b"2", b"3"])

    def test_offset_beyond_the_queue(self) -> None:
        """A group beyond the end of the queue continues at the end."""
        self.send_some(2, 1)
        self.box.kernel.consumer_offset.commit("", "g", "T", 0, 100)
        self.assertEqual(self.pop(), [])
        self.send(b"new")
        self.assertEqual([each.body for each in self.pop()], [b"new"])

    def test_no_client_sends_to_the_revive_topic(self) -> None:
        """The content of the topic decides which messages are delivered again."""
        self.assertRaises(self.failureException, self.send, b"x", REVIVE_TOPIC)

    def test_revive_queue_num(self) -> None:
        """The setting determines the number of queues, which never decreases."""
        self.restart(reviveQueueNum="12")
        config = self.box.kernel.topic_config.table[REVIVE_TOPIC]
        self.assertEqual((config.read_queue_nums, config.write_queue_nums), (12, 12))
        self.restart(reviveQueueNum="1")
        self.assertEqual(len(self.service.queues), 12)
        self.send_some(2, 1)
        self.assertEqual({self.ask_pop(count=1).header(PopMessageResponseHeader).revive_qid
                          for _ in range(2)}, {0})


class _Hooks:
    """A plugin that records the calls of its hooks."""

    def __init__(self) -> None:
        self.before: list[tuple[str, str, int]] = []
        self.after: list[tuple[str, str, int, int, int, int]] = []

    @hookimpl
    def before_consume(self, context: ConsumeContext) -> BrokerError | None:
        self.before.append((context.group, context.topic, context.queue_id))
        if context.group == "late":
            return RequestRefused(ResponseCode.SYSTEM_BUSY, "come back tomorrow")
        return None

    @hookimpl
    def after_consume(self, context: ConsumeContext) -> None:
        self.after.append((context.group, context.topic, context.queue_id, context.offset,
                           context.message_count, len(context.messages)))


class HookTests(PopTestCase):
    """``before_consume`` and ``after_consume`` of a pop."""

    def setUp(self) -> None:
        self.hooks = _Hooks()
        self.plugins = (*PopTestCase.plugins, ("hooks", self.hooks))  # type: ignore[assignment]
        super().setUp()

    def test_hooks_see_a_pop_and_what_each_queue_gave(self) -> None:
        """One hook gets the request, the other each queue; a refusal becomes the response."""
        self.send_some(5)
        self.assertEqual(len(self.pop()), 5)
        self.assertEqual(self.pop(), [])
        self.assertEqual(self.hooks.before, [("g", "T", -1)] * 2)
        self.assertEqual(sorted(self.hooks.after), [("g", "T", 0, 0, 3, 3), ("g", "T", 1, 0, 2, 2)])
        reply = self.ask_pop(group="late")
        self.assertEqual((reply.code, reply.remark),
                         (ResponseCode.SYSTEM_BUSY, "come back tomorrow"))
        self.assertEqual(len(self.hooks.after), 2)


class RetryTests(PopTestCase):
    """Messages that are delivered a second time."""

    def test_long_names(self) -> None:
        """A group whose retry topic would have an invalid name pops nothing, except in order."""
        topic, group = "t" * 120, "g" * 130
        self.send(b"x", topic=topic)
        self.assertEqual(self.ask_pop(topic=topic, group=group).code,
                         ResponseCode.INVALID_PARAMETER)
        self.assertEqual(len(self.pop(topic=topic, group=group, order=True)), 1)
        self.assertEqual(len(self.pop(topic=topic, group="g" * 127)), 1)
        self.pass_time(8000)
        self.assertEqual(self.retries(pop_retry_topic(topic, "g" * 127, False)), [b"x"])

    def test_under_its_topic(self) -> None:
        """A retry has the name of its topic, a receipt, and one try more."""
        self.send(b"x", tag="red", UNIQ_KEY="u")
        first_ms = self.box.now_ms
        self.pop()
        self.pass_time(8000)
        self.assertEqual(self.retries(), [b"x"])
        [again] = self.pop()
        self.assertEqual((again.message.topic, again.message.reconsume_times, again.topic),
                         ("T", 1, RETRY_TOPIC))
        properties = again.message.properties_map()
        self.assertEqual((properties["TAGS"], properties["UNIQ_KEY"], properties["1ST_POP_TIME"]),
                         ("red", "u", str(first_ms)))
        self.ack(again)
        self.pass_time(10_000)
        self.assertEqual(self.retries(), [b"x"])

    def test_first_and_last(self) -> None:
        """Some pops look for retries first, the others do not forget them."""
        self.send_some(3, 1)
        self.pop()
        self.pass_time(8000)
        for chance in ("100", "0"):
            self.restart(popFromRetryProbability=chance)
            self.send(b"new")
            bodies = [each.body for each in self.pop(count=1)]
            self.assertEqual(bodies, [b"0"] if chance == "100" else [b"new"])

    def test_second_version(self) -> None:
        """With enableRetryTopicV2 new retries have another topic; old ones are still popped."""
        self.send(b"old")
        self.pop()
        self.pass_time(8000)
        self.restart(enableRetryTopicV2="true")
        self.send(b"new")
        self.pop(0, count=1, group="h")
        popped: list[bytes] = []
        for _ in range(40):
            popped += [each.body for each in self.pop()]
        self.assertEqual(sorted(popped), [b"new", b"old"])
        self.pass_time(8000)
        self.assertEqual(self.retries(pop_retry_topic("T", "h", True)), [b"old"])
        self.assertEqual(self.retries(pop_retry_topic("T", "g", True)), [b"new"])
        # It was in the first topic, and stays there.
        self.assertEqual(self.retries(), [b"old", b"old"])

    def test_retries_count_under_their_topic(self) -> None:
        """Retries count under their topic, and are marked."""
        self.send_some(3, 1)
        self.pop()
        self.pass_time(8000)
        self.assertEqual(len(self.pop()), 3)
        stats = self.box.kernel.stats
        sums = stats.popped_sums()
        self.assertEqual({key: each.count for key, each in sums.items()}, {
            ("T", "g", False): 3, ("T", "g", True): 3})
        self.assertEqual(sums["T", "g", True], stats.sums("GROUP_GET", RETRY_TOPIC, "g"))
        self.assertEqual(sums["T", "g", False], stats.sums("GROUP_GET", "T", "g"))

    def test_under_the_name_of_the_retry_topic(self) -> None:
        """So is it under popResponseReturnActualRetryTopic."""
        self.send(b"x")
        self.pop()
        self.pass_time(8000)
        self.restart(popResponseReturnActualRetryTopic="true")
        [again] = self.pop()
        self.assertEqual(again.message.topic, RETRY_TOPIC)
        self.ack(again)

    def test_tags_of_retries(self) -> None:
        """A retry passes the filter of its topic."""
        self.send(b"a", tag="a")
        self.send(b"b", tag="b")
        self.pop()
        self.pass_time(8000)
        self.assertEqual([each.body for each in self.pop(expression="b")], [b"b"])

    def test_forgotten_retry_topic(self) -> None:
        """A topic of retries that a kill made forgotten is made again."""
        self.send(b"x")
        self.pop()
        self.pass_time(8000)
        self.box.kernel.topic_config.delete(RETRY_TOPIC)
        self.assertEqual([each.body for each in self.pop()], [b"x"])


class PeekTests(PopTestCase):
    """The request PEEK_MESSAGE."""

    def peek(self, queue_id: int = -1, count: int = 32) -> list[bytes]:
        reply = self.box.ask(RequestCode.PEEK_MESSAGE, PeekMessageRequestHeader(
            consumer_group="g", topic="T", queue_id=queue_id, max_msg_nums=count))
        if not reply.body:
            self.assertEqual(reply.code, ResponseCode.PULL_NOT_FOUND)
            return []
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        return [message.body for message in records_of(reply.body)]

    def test_takes_nothing(self) -> None:
        """The messages that a pop would return are returned, and can still be popped."""
        bodies = self.send_some(4, 1)
        for _ in range(2):
            self.assertEqual(self.peek(count=3), bodies[:3])
        self.assertEqual([each.body for each in self.pop(count=2)], bodies[:2])
        self.assertEqual(self.peek(0), bodies[2:])
        self.pop()
        self.assertEqual(self.peek(), [])
        self.pass_time(8000)
        self.assertEqual(self.peek(), bodies)
