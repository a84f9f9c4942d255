"""Public bug reports about consumers, reproduced here; see ``tests/REPORTS.md``."""

from __future__ import annotations

from unittest.mock import patch

from tests.client.test_new_queues import FOLLOW_MS, Case, Reader
from twistmq.client.base.messages import Message
from twistmq.client.core.consumer.subscriptions import subscription
from twistmq.client.roles.parts import build_consumer
from twistmq.client.shell.offset_file import OffsetFile
from twistmq.protocol.bodies import TopicConfig


class BroadcastTests(Case):
    """Members that keep their offsets in a file."""

    kind = "broadcast"

    def broker_away(self, reader: Reader, away_ms: float) -> None:
        """Kill the first broker, and start it again after a while."""
        self.cluster.kill_broker(self.a.name)
        reader.run(away_ms)
        self.cluster.start_broker(self.a.name)
        reader.run(FOLLOW_MS)

    def test_a_broker_is_away_for_a_while(self) -> None:
        """apache/rocketmq#4016: the offsets of queues are lost while their broker is down.

        What is sent before the member sees the broker again was skipped there.
        """
        self.set_queues(self.b, "T", 1)
        reader = self.reader()
        reader.run()
        self.send(self.a, "T", 0, b"a0", b"a1")
        self.send(self.b, "T", 0, b"b0")
        reader.run(10_000)
        self.assertEqual(reader.take(), [b"a0", b"a1", b"b0"])
        self.cluster.kill_broker(self.a.name)
        reader.run(FOLLOW_MS)
        self.send(self.b, "T", 0, b"b1")
        self.cluster.start_broker(self.a.name)
        self.send(self.a, "T", 0, b"a2")
        reader.run(FOLLOW_MS)
        self.assertEqual(reader.take(), [b"a2", b"b1"])

    def test_a_broker_is_away_from_a_member_that_was_there_before(self) -> None:
        """apache/rocketmq#4016 once more: the file is older than the first message of the queue."""
        self.set_queues(self.b, "T", 1)
        first = self.reader()
        first.run()
        self.send(self.b, "T", 0, b"b0")
        first.run(10_000)
        self.close(first)
        self.cluster.advance(5_000)
        reader = self.reader()
        reader.run()
        self.send(self.a, "T", 0, b"a0", b"a1")
        reader.run(10_000)
        self.assertEqual((first.take(), reader.take()), ([b"b0"], [b"a0", b"a1"]))
        self.broker_away(reader, FOLLOW_MS)
        self.send(self.a, "T", 0, b"a2")
        reader.run(FOLLOW_MS)
        self.assertEqual(reader.take(), [b"a2"])

    def test_the_file_cannot_be_written(self) -> None:
        """apache/rocketmq#719: with a file that is read-only, a member does not continue."""
        reader = self.reader()
        reader.run()
        with patch.object(OffsetFile, "write", side_effect=OSError("read-only file system")):
            self.send(self.a, "T", 0, b"0", b"1")
            reader.run(10_000)
            self.assertEqual(reader.take(), [b"0", b"1"])
            self.broker_away(reader, FOLLOW_MS)
            self.send(self.a, "T", 0, b"2")
            reader.run(FOLLOW_MS)
            self.assertEqual(reader.take(), [b"2"])

    def test_messages_that_fail_do_not_hold_up_the_offset(self) -> None:
        """apache/rocketmq-client-go#977: after a failure the offset in the file
        does not advance.
        """
        reader = self.reader()
        reader.run()
        self.send(self.a, "T", 0, b"bad", b"good")
        self.cluster.advance(5_000)
        while (batch := reader.member.take(1)) is not None:
            if batch.messages[0].body == b"bad":
                reader.member.fail(batch.assigned, batch.messages)
            else:
                reader.member.succeed(batch.assigned, batch.messages)
        reader.run(10_000)
        self.close(reader)
        self.send(self.a, "T", 0, b"new")
        again = self.reader()
        again.run()
        self.assertEqual(again.take(), [b"new"])


class TagTests(Case):
    """A consumer subscribes to a tag that has the same hash as another tag."""

    def test_offsets_move_over_messages_of_a_colliding_tag(self) -> None:
        """apache/rocketmq#72: if the client drops all messages of an answer, it commits nothing."""
        reader = self.reader()
        reader.member.subscribe(subscription("T", "Aa"))
        reader.run()
        for _ in range(5):
            self.producer.send(Message("T", b"x", tags="BB"))
        reader.run(10_000)
        self.assertEqual(reader.take(), [])
        self.assertEqual(self.a.box.kernel.consumer_offset.query("g", "T", 0), 5)


class PullTests(Case):
    """A pull consumer."""

    kind = "pull"

    def test_a_pause_keeps_the_position(self) -> None:
        """dpkp/kafka-python#2011: after a pause and a resume the position is far ahead.

        Messages that were read ahead were dropped by the pause.
        """
        reader = self.reader()
        reader.run()
        sent = [b"%02d" % number for number in range(40)]
        self.send(self.a, "T", 0, *sent)
        self.cluster.advance(5_000)
        member, pull = reader.member, reader.pull
        assert pull is not None
        with pull.poller.polls.begin() as poll:
            [batch] = pull.poller.poll_now(poll, 10)
        found = [message.body for message in batch.messages]
        member.set_paused(None, True)
        self.assertEqual(pull.positions.position(member.assigned()[0]), 10)
        self.cluster.advance(30_000)
        member.set_paused(None, False)
        for _ in range(10):
            self.cluster.advance(1_000)
            with pull.poller.polls.begin() as poll:
                found += [message.body for batch in pull.poller.poll_now(poll, 10)
                          for message in batch.messages]
        self.assertEqual(found, sent)

    def test_a_seek_before_a_pause_counts(self) -> None:
        """confluentinc/librdkafka#3471: a seek that is followed by a pause is forgotten."""
        reader = self.reader()
        reader.run()
        self.send(self.a, "T", 0, *[b"%d" % number for number in range(6)])
        reader.run()
        self.assertEqual(len(reader.take()), 6)
        member, pull = reader.member, reader.pull
        assert pull is not None
        [queue] = member.assigned()
        member.client.tasks.spawn(pull.positions.seek(queue, 2), "seek")
        self.cluster.advance(50)
        member.set_paused([queue], True)
        self.cluster.advance(3_000)
        member.set_paused([queue], False)
        reader.run()
        self.assertEqual(reader.take(), [b"2", b"3", b"4", b"5"])


class RetryTests(Case):
    """Messages whose handlers fail."""

    def fail_all(self, reader: Reader, milliseconds: float) -> list[tuple[bytes, int]]:
        """Let time pass and fail each message; :returns: the bodies and attempts."""
        seen = []
        for _ in range(int(milliseconds) // 100):
            self.cluster.advance(100)
            while (batch := reader.member.take(1)) is not None:
                seen += [(message.body, message.attempt) for message in batch.messages]
                reader.member.fail(batch.assigned, batch.messages)
        return seen

    def test_what_an_order_gives_up_stays_at_its_broker(self) -> None:
        """apache/rocketmq#10405: a consumer in order makes its retry topic at any broker.

        Messages that it gives up go to a broker that does not have their topic.
        """
        client = self.cluster.client()
        for broker in (self.a, self.b):
            broker.box.kernel.topic_config.update(TopicConfig("TBW102", 8, 8, 7), {})
            broker._register()
        member = build_consumer(client.core, "g", {"T": "*"}, {
            "start": "first", "order": "queue", "max_attempts": 1, "suspend_s": 0.1})
        reader = Reader(self.cluster, member)
        self.send(self.a, "T", 0, *[b"%d" % number for number in range(6)])
        self.fail_all(reader, 30_000)
        found = {broker.name: sorted(
            topic for topic in broker.box.kernel.topic_config.table if topic.startswith("%"))
            for broker in (self.a, self.b)}
        self.assertIn("%DLQ%g", found[self.a.name])
        self.assertEqual(found[self.b.name], [])
        self.assertEqual([each.body for each in self.a.box.stored("%DLQ%g", 0)],
                         [b"%d" % number for number in range(6)])

    def test_retries_in_a_namespace(self) -> None:
        """apache/rocketmq-client-go#933: in a namespace, the retries of a group are not read."""
        self.set_queues(self.a, "space%T", 1)
        client = self.cluster.client(namespace="space")
        reader = Reader(self.cluster, build_consumer(
            client.core, "g", {"T": "*"}, {"start": "first"}))
        producer = self.cluster.producer(self.cluster.client(namespace="space"))
        producer.send("T", b"x")
        self.assertEqual(self.fail_all(reader, 50_000)[:2], [(b"x", 1), (b"x", 2)])

    def test_a_batch_in_a_namespace(self) -> None:
        """apache/rocketmq-client-go#662: only the batch has the namespace, and not its messages."""
        self.set_queues(self.a, "space%T", 1)
        producer = self.cluster.producer(self.cluster.client(namespace="space"))
        sender = producer.sender
        ready = sender.prepare_batch([Message("T", b"%d" % number) for number in range(3)])
        producer.client.run(sender.send(ready))
        client = self.cluster.client(namespace="space")
        reader = Reader(self.cluster, build_consumer(
            client.core, "g", {"T": "*"}, {"start": "first"}))
        reader.run()
        self.assertEqual(reader.take(), [b"0", b"1", b"2"])
        self.assertEqual([each.topic for each in self.a.box.stored("space%T", 0)], ["space%T"] * 3)
