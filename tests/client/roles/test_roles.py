"""The methods that all styles share, in each style, with a running broker."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred

from tests.client.roles.styles import STYLES, Style, in_each_style
from tests.client.test_shells import ShellCase
from twistmq.client import (
    Closed,
    Full,
    Message,
    MessageQueue,
    NotAssigned,
    OptionError,
    Producer,
    ReceiptExpired,
    ReceivedMessage,
    RequestRefused,
    RequestTimeout,
)
from twistmq.client.base.interceptors import Interceptor
from twistmq.client.core.consumer.strategies import Configured
from twistmq.protocol.record import records_of


class RolesCase(ShellCase):
    """Each style has a topic with ten messages and a group, both with its name."""

    def setUp(self) -> None:
        """Send the messages."""
        super().setUp()
        with Producer(self.where) as producer:
            for style in STYLES:
                for number in range(10):
                    producer.send(style.name, b"%d" % number)

    def made(self, style: Style, kind: str, **options: Any) -> Any:
        """Create a client, a producer or a consumer with its own client."""
        return getattr(style.module, kind)(self.where, **style.more, **options)


class _Seen(Interceptor):
    """An interceptor that records its calls."""

    def __init__(self) -> None:
        self.before_sends: list[tuple[str, str | None]] = []
        self.after_sends: list[tuple[Any, ...]] = []
        self.consumptions: list[tuple[Any, ...]] = []

    def before_send(self, topic: str, properties: dict[str, str]) -> None:
        """See ``Interceptor``."""
        self.before_sends.append((topic, properties.get("TAGS")))

    def after_send(
        self, topic: str, ids: str, duration_ms: float, result: Any, error: Exception | None,
    ) -> None:
        """See ``Interceptor``."""
        self.after_sends.append((topic, ids, result, error))

    def before_consume(self, group: str, queue: Any, messages: Any) -> None:
        """See ``Interceptor``."""
        self.consumptions.append(
            ("before", group, queue.topic, [message.body for message in messages]))

    def after_consume(self, group: str, queue: Any, messages: Any, outcome: str) -> None:
        """See ``Interceptor``."""
        self.consumptions.append(
            ("after", group, queue.topic, [message.body for message in messages], outcome))


class ClientTests(RolesCase):
    """The methods of a client."""

    def test_topics_queues_and_offsets(self) -> Deferred[Any]:
        """Each method that all styles have is called."""
        async def main(style: Style) -> None:
            topic, got = style.name, style.got
            async with style.opened(self.made(style, "Client")) as client:
                self.assertIn(topic, await got(client.topics()))
                queues = await got(client.read_queues(topic))
                self.assertEqual(await got(client.write_queues(topic)), queues)
                ends = [await got(client.max_offset(queue)) for queue in queues]
                self.assertEqual(sum(ends), 10)
                for queue, end in zip(queues, ends, strict=True):
                    self.assertEqual(await got(client.min_offset(queue)), 0)
                    self.assertEqual(await got(client.search_offset(queue, 0)), 0)
                    pulled = await got(client.pull(queue, 0))
                    self.assertEqual(len(records_of(pulled.body)), end)
                group = f"o-{style.name}"
                self.assertIsNone(await got(client.group_offset(group, queues[0])))
                # A broker refuses to commit for a group that never had a member.
                async with style.opened(style.module.PullConsumer(client=client, group=group)):
                    await got(client.commit_group_offset(group, queues[0], 1))
                self.assertEqual(await got(client.group_offset(group, queues[0])), 1)
            with self.assertRaises(Closed):
                await got(client.topics())

        return in_each_style(main)

    def test_a_topic_is_created_and_changed(self) -> Deferred[Any]:
        """It can be used at once; an invalid name or number is refused."""
        async def main(style: Style) -> None:
            topic, got = f"new-{style.name}", style.got
            async with style.opened(self.made(style, "Client")) as client:
                for queues in (3, 5):
                    await got(client.create_topic(topic, queues=queues))
                    self.assertEqual(len(await got(client.read_queues(topic, again=True))), queues)
                with self.assertRaises(RequestRefused):
                    await got(client.create_topic("no topic"))
                with self.assertRaises(OptionError):
                    await got(client.create_topic(topic, queues=0))
                typed = f"typed-{style.name}"
                await got(client.create_topic(typed, attributes={"message.type": "PRIORITY"}))
                made = self.broker.call(lambda: self.broker.kernel.topic_config.get(typed))
                self.assertEqual(made.attributes, {"message.type": "PRIORITY"})
                for wrong in ({"message.type": "A,B"}, {"": "A"}, "message.type=FIFO"):
                    with self.assertRaises(OptionError):
                        await got(client.create_topic(topic, attributes=wrong))

        return in_each_style(main)

    def test_producers_and_consumers_share_a_client(self) -> Deferred[Any]:
        """They use its connections and its id; the end of one does not affect the others."""
        def connections() -> int:
            return self.broker.call(lambda: len(self.broker.kernel.channels))

        def ids_of(group: str) -> list[str]:
            found = self.broker.kernel.clients.consumer_group(group)
            return [] if found is None else found.client_ids

        async def main(style: Style) -> None:
            topic, got, module = style.name, style.got, style.module
            async with style.opened(self.made(style, "Client")) as client:
                first = module.Producer(client=client, group="p1")
                await got(first.send(topic, b"x"))
                count = connections()
                async with style.opened(module.Producer(client=client, group="p2")) as second:
                    await got(second.send(topic, b"x"))
                for kind in ("Consumer", "PopConsumer"):
                    group = f"{kind}-{style.name}"
                    consumer = getattr(module, kind)(
                        client=client, group=group, topics=topic, start="first")
                    self.assertIs(consumer.client, client)
                    async with style.opened(consumer):
                        await got(consumer.run(lambda message, each=consumer: each.stop()))
                        self.assertEqual(self.broker.call(ids_of, group),
                                         [client.client_id])
                await got(first.send(topic, b"x"))
                self.assertEqual(connections(), count)
                await got(first.close())
                self.assertIn(topic, await got(client.topics()))

        return in_each_style(main)


class ProducerTests(RolesCase):
    """The sends that wait."""

    def test_each_kind_of_send_stores_all_that_it_was_given(self) -> Deferred[Any]:
        """A message, a batch, and a one-way message are sent."""
        async def main(style: Style) -> None:
            topic, got = f"sent-{style.name}", style.got
            async with style.opened(self.made(style, "Producer", group="p")) as producer:
                await got(producer.send(topic, b"0"))
                batch = [Message(topic=topic, body=b"%d" % each) for each in (1, 2, 3)]
                result = await got(producer.send_batch(batch))
                self.assertEqual(len(result.id.split(",")), 3)
                await got(producer.send_oneway(topic, b"4"))
                await got(producer.send_oneway(Message(topic=topic, body=b"5")))
                queues = await got(producer.queues(topic))
                bodies: list[bytes] = []
                deadline = time.monotonic() + 20
                while len(bodies) < 6 and time.monotonic() < deadline:
                    bodies = []
                    for queue in queues:
                        pulled = await got(producer.client.pull(queue, 0))
                        bodies += [record.body for record in records_of(pulled.body)]
                self.assertEqual(sorted(bodies), [b"%d" % each for each in range(6)])
                self.assertEqual(producer.group, "p")
                self.assertIn("producer of group p", repr(producer))
            self.assertIn("closed", repr(producer))
            with self.assertRaises(Closed):
                await got(producer.send(topic, b"6"))

        return in_each_style(main)

    def test_each_kind_of_send_keeps_the_parts_of_a_message(self) -> Deferred[Any]:
        """The tags, keys, properties and queue are those that were given."""
        async def main(style: Style) -> None:
            topic, got = f"parts-{style.name}", style.got
            parts: dict[str, Any] = {
                "tags": "a", "keys": ["k", "l"], "properties": {"p": "v"}, "flag": 7}

            def made(body: bytes) -> Message:
                return Message(topic=topic, body=body, **parts)

            async with style.opened(self.made(style, "Producer")) as producer:
                await got(producer.send(topic, b"0"))
                queue = (await got(producer.queues(topic)))[2]
                begin = await got(producer.client.max_offset(queue))
                await got(producer.send(topic, b"1", queue=queue, **parts))
                await got(producer.send(made(b"2"), queue=queue))
                await got(producer.send_oneway(topic, b"3", queue=queue, **parts))
                await got(producer.send_batch([made(b"4"), made(b"5")], queue))
                waiting = [await got(producer.send_soon(topic, b"6", queue=queue, **parts)),
                           await got(producer.send_soon(made(b"7"), queue=queue))]
                results = [await style.result(each) for each in waiting]
                self.assertEqual({result.queue.queue_id for result in results}, {2})
                many = await got(producer.send_many([made(b"%d" % each) for each in range(8, 18)]))
                self.assertEqual(len({result.id for result in many}), 10)
                records: list[Any] = []
                deadline = time.monotonic() + 20
                while len(records) < 7 and time.monotonic() < deadline:
                    pulled = await got(producer.client.pull(queue, begin))
                    records = [each for each in records_of(pulled.body) if len(each.body) == 1
                               and each.body < b"8"]
                self.assertEqual(sorted(each.body for each in records),
                                 [b"%d" % each for each in range(1, 8)])
                for queue in await got(producer.queues(topic)):
                    pulled = await got(producer.client.pull(queue, 0))
                    for record in records_of(pulled.body):
                        if record.body != b"0":
                            found = record.properties_map()
                            self.assertEqual(
                                (found["TAGS"], found["KEYS"], found["p"], record.flag),
                                ("a", "k l", "v", 7), msg=str(record.body))

        return in_each_style(main)

    def test_each_kind_of_delay_holds_a_message_back(self) -> Deferred[Any]:
        """The broker stores it in its topic a second later at the least, by each kind of send."""
        async def main(style: Style) -> None:
            topic, got = f"late-{style.name}", style.got
            async with style.opened(self.made(style, "Producer")) as producer:
                await got(producer.send(topic, b"0"))
                [queue, *_] = await got(producer.queues(topic))
                at = {"deliver_at": time.time() + 2.5}
                await got(producer.send(topic, b"1", queue=queue, delay_level=1))
                await got(producer.send(topic, b"2", queue=queue, delay_s=2.5))
                await got(producer.send(topic, b"3", queue=queue, **at))
                await got(producer.send_oneway(topic, b"4", queue=queue, delay_level=1))
                await got(producer.send_oneway(topic, b"5", queue=queue, delay_s=2.5))
                soon = [await got(producer.send_soon(topic, body, queue=queue, **options))
                        for body, options in ((b"6", {"delay_level": 1}), (b"7", at))]
                for future in soon:
                    await style.result(future)
                records: list[Any] = []
                deadline = time.monotonic() + 20
                while len(records) < 7 and time.monotonic() < deadline:
                    pulled = await got(producer.client.pull(queue, 0))
                    records = [each for each in records_of(pulled.body) if each.body != b"0"]
                self.assertEqual(sorted(each.body for each in records),
                                 [b"%d" % each for each in range(1, 8)])
                for record in records:
                    self.assertGreaterEqual(record.store_timestamp - record.born_timestamp, 1000,
                                            msg=str(record.body))

        return in_each_style(main)

    def test_options_bound_what_is_under_way(self) -> Deferred[Any]:
        """A message without room within the time-out is refused."""
        async def main(style: Style) -> None:
            topic, got = f"bound-{style.name}", style.got
            bounds = {"in_flight_max": 2, "in_flight_bytes_max": 10_000}
            async with style.opened(self.made(
                    style, "Producer", timeout_s=0.3, **bounds)) as producer:
                room = producer._room
                # They stand for messages that do not end.
                room.take(9000)
                with self.assertRaises(Full) as caught:
                    await got(producer.send_soon(topic, bytes(2000)))
                self.assertIn("1 messages with 9000 bytes", str(caught.exception))
                room.take(10)
                with self.assertRaises(Full) as caught:
                    await got(producer.send_soon(topic, b"1"))
                self.assertIn("2 messages with 9010 bytes", str(caught.exception))
                room.give(10)
                room.give(9000)
            async with style.opened(self.made(style, "Producer", **bounds)) as producer:
                room = producer._room
                room.take(9000)
                await style.result(await got(producer.send_soon(topic, bytes(100))))
                room.give(9000)
                result = await style.result(await got(producer.send_soon(topic, bytes(2000))))
                self.assertTrue(result.safe)
                await got(producer.flush())
                self.assertEqual((room.count, room.bytes), (0, 0))

        return in_each_style(main)

    def test_interceptors_see_each_send_and_each_consumption(self) -> Deferred[Any]:
        """An interceptor is called before and after each one, with the message and the outcome."""
        async def main(style: Style) -> None:
            topic, got, seen = f"seen-{style.name}", style.got, _Seen()
            async with style.opened(self.made(
                    style, "Producer", interceptors=[seen])) as producer:
                sent = await got(producer.send(topic, b"0", tags="a"))
                with self.assertRaises(RequestRefused):
                    # No broker holds a message for a month.
                    await got(producer.send(topic, b"1", delay_s=30 * 86_400))
            self.assertEqual(seen.before_sends, [(topic, "a"), (topic, None)])
            [(*first, result, no_error), (*second, no_result, error)] = seen.after_sends
            self.assertEqual((first, result, no_error), ([topic, sent.id], sent, None))
            self.assertEqual((second[0], no_result), (topic, None))
            self.assertIsInstance(error, RequestRefused)
            async with style.opened(self.made(
                    style, "Consumer", group=f"g-{topic}", topics=topic, start="first",
                    interceptors=[seen])) as consumer:
                def handler(message: ReceivedMessage[Any]) -> None:
                    seen.consumptions.append(("handler", message.body))
                    consumer.stop()

                await got(consumer.run(handler))
            group = f"g-{topic}"
            self.assertEqual(seen.consumptions, [
                ("before", group, topic, [b"0"]), ("handler", b"0"),
                ("after", group, topic, [b"0"], "success")])

        return in_each_style(main)

    def test_a_time_that_no_clock_reaches_is_refused(self) -> Deferred[Any]:
        """Each call with a time refuses it; otherwise a task of the client would fail."""
        async def main(style: Style) -> None:
            topic, got = style.name, style.got
            for kind, options, calls in (
                    ("Client", {}, [("pull", (MessageQueue(topic, "b", 0), 0), "hold_s")]),
                    ("Producer", {}, [("send", (topic, b"x"), "timeout_s"),
                                      ("request", (topic, b"x"), "timeout_s")]),
                    ("PullConsumer", {"group": f"n-{topic}", "topics": topic},
                     [("poll", (), "timeout_s")]),
                    ("PopConsumer", {"group": f"m-{topic}", "topics": topic},
                     [("receive", (), "wait_s"), ("receive", (), "invisible_s"),
                      ("close", (), "timeout_s")]),
                    ("Consumer", {"group": f"o-{topic}", "topics": topic},
                     [("close", (), "timeout_s")])):
                async with style.opened(self.made(style, kind, **options)) as client:
                    for name, arguments, keyword in calls:
                        for bad in (math.nan, math.inf, -1):
                            with self.assertRaises(OptionError) as raised:
                                await got(getattr(client, name)(*arguments, **{keyword: bad}))
                            self.assertIn(keyword, str(raised.exception))

        return in_each_style(main)

    def test_a_request_without_a_reply_and_a_recall_without_a_handle(self) -> Deferred[Any]:
        """The errors are the same in each style."""
        async def main(style: Style) -> None:
            got = style.got
            async with style.opened(self.made(style, "Producer")) as producer:
                with self.assertRaises(RequestTimeout):
                    await got(producer.request(style.name, b"?", timeout_s=0.3))
                result = await got(producer.send(style.name, b"at once"))
                with self.assertRaises(OptionError):
                    await got(producer.recall(result))

        return in_each_style(main)


class PullConsumerTests(RolesCase):
    """The pull consumer."""

    def test_an_assigned_queue_is_read_again_from_other_offsets(self) -> Deferred[Any]:
        """Every method that moves it is called."""
        async def main(style: Style) -> None:
            got = style.got
            async with style.opened(self.made(style, "Client")) as client:
                queues = await got(client.read_queues(style.name))
            queue = queues[0]
            made = self.made(style, "PullConsumer", group=f"g-{style.name}", start="first")
            async with style.opened(made) as consumer:
                await got(consumer.assign([queue]))
                first = await got(consumer.poll(100))
                self.assertEqual({message.queue for message in first}, {queue})
                self.assertEqual(consumer.assigned(), [queue])
                for seek in (
                        lambda: consumer.seek(queue, 0), lambda: consumer.seek_to_begin(queue),
                        lambda: consumer.seek_to_time(queue, datetime(2020, 1, 1, tzinfo=UTC))):
                    await got(seek())
                    self.assertEqual(consumer.position(queue), 0)
                    again = await got(consumer.poll(100))
                    self.assertEqual(again[0].body, first[0].body)
                with self.assertRaises(NotAssigned):
                    await got(consumer.seek(queues[1], 0))
                await got(consumer.seek_to_end(queue))
                self.assertEqual(await got(consumer.poll(timeout_s=0.05)), [])
                await got(consumer.commit())
                self.assertEqual(await got(consumer.committed(queue)), consumer.position(queue))
                with self.assertRaises(OptionError):
                    consumer.subscribe("another")
            with self.assertRaises(Closed):
                await got(consumer.poll())

        return in_each_style(main)

    def test_queues_that_are_paused_are_not_read(self) -> Deferred[Any]:
        """They are read again after the consumer resumes them."""
        async def main(style: Style) -> None:
            got = style.got
            made = self.made(style, "PullConsumer", group=f"p-{style.name}", start="first")
            async with style.opened(made) as consumer:
                consumer.pause()
                consumer.subscribe(style.name)
                self.assertEqual(await got(consumer.poll(timeout_s=0.3)), [])
                consumer.resume()
                self.assertNotEqual(await got(consumer.poll(timeout_s=20)), [])
                self.assertEqual({queue.topic for queue in consumer.assigned()}, {style.name})
                consumer.unsubscribe(style.name)

        return in_each_style(main)


class StrategyTests(RolesCase):
    """The option ``strategy``."""

    def test_the_programs_strategy_divides_the_queues(self) -> Deferred[Any]:
        """The consumers that pull have the queues that it gives them, and no others."""
        async def main(style: Style) -> None:
            got = style.got
            async with style.opened(self.made(style, "Client")) as client:
                queues = await got(client.read_queues(style.name))
                self.assertGreater(len(queues), 2)
                for kind in ("Consumer", "PullConsumer"):
                    made = self.made(style, kind, group=f"s-{kind}-{style.name}",
                                     topics=style.name, strategy=Configured([queues[2]]))
                    async with style.opened(made) as consumer:
                        await got(consumer.commit())
                        while not consumer.assigned():
                            # This gives the others their turn.
                            await got(client.topics())
                        self.assertEqual(consumer.assigned(), [queues[2]], msg=kind)

        return in_each_style(main)


class PopConsumerTests(RolesCase):
    """The pop consumer."""

    def test_received_messages_are_decided_about(self) -> Deferred[Any]:
        """They are acknowledged, extended, returned or buried; one remains."""
        async def main(style: Style) -> None:
            got = style.got
            made = self.made(style, "PopConsumer", group=f"g-{style.name}", topics=style.name,
                             start="first")
            async with style.opened(made) as consumer:
                received: list[ReceivedMessage[Any]] = []
                while len(received) < 10:
                    received += await got(consumer.receive(10, invisible_s=40))
                await got(consumer.acknowledge(received[0]))
                await got(consumer.acknowledge(received[1:8]))
                await got(consumer.extend(received[8], 60))
                await got(consumer.bury(received[8]))
                await got(consumer.retry(received[9], 0))
                with self.assertRaises(ReceiptExpired):
                    await got(consumer.extend(received[0], 60))
                again: list[ReceivedMessage[Any]] = []
                while not again:
                    again = await got(consumer.receive(wait_s=5))
                self.assertEqual([(each.body, each.attempt) for each in again],
                                 [(received[9].body, 2)])
                await got(consumer.acknowledge(again))
                self.assertEqual(await got(consumer.receive(wait_s=0)), [])
            with self.assertRaises(Closed):
                await got(consumer.receive())

        return in_each_style(main)
