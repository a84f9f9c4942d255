"""The producer that records its messages."""

from __future__ import annotations

import inspect
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client import (
    Closed,
    Message,
    MessageQueue,
    OptionError,
    Producer,
    RequestTimeout,
)
from twistmq.client.testing import RecordingProducer


class RecordingTests(SynchronousTestCase):
    """The class RecordingProducer."""

    def test_it_keeps_the_messages_of_every_kind_of_send(self) -> None:
        """They are in the order of the sends."""
        with RecordingProducer() as producer:
            producer.send("orders", b"1", tags="eu", keys="o-1")
            producer.send_soon("orders", b"2").result()
            producer.send_many([Message("orders", b"3")])
            producer.send_batch([Message("orders", b"4"), Message("orders", b"5")])
            producer.send_oneway("orders", b"6")
            producer.send_batch_soon([Message("orders", b"7")]).result()
        self.assertEqual([each.body for each in producer.messages],
                         [b"1", b"2", b"3", b"4", b"5", b"6", b"7"])
        self.assertEqual((producer.messages[0].tags, producer.messages[0].keys),
                         ("eu", ("o-1",)))

    def test_results_count_offsets(self) -> None:
        """Each queue has its own offsets, and each message an id."""
        producer = RecordingProducer()
        queue = MessageQueue("orders", "broker-a", 2)
        results = [producer.send("orders", b"1", queue=queue) for _ in range(3)]
        self.assertEqual([each.offset for each in results], [0, 1, 2])
        self.assertEqual(len({each.id for each in results}), 3)
        self.assertTrue(results[0].safe)

    def test_it_refuses_as_a_producer_does(self) -> None:
        """An invalid message is an error, and is not recorded."""
        producer = RecordingProducer()
        self.assertRaises(OptionError, producer.send, "no topic!", b"1")
        self.assertRaises(OptionError, producer.send, "orders", "text")
        self.assertRaises(OptionError, producer.send_batch,
                          [Message("orders", b"1"), Message("bills", b"1")])
        self.assertRaises(OptionError, RecordingProducer, wrong=1)  # type: ignore[call-arg]
        self.assertEqual(producer.messages, [])

    def test_it_fails_when_it_is_told_to(self) -> None:
        """A program can test its handling of errors."""
        producer = RecordingProducer()
        producer.error = ConnectionError("no broker")
        self.assertRaises(ConnectionError, producer.send, "orders", b"1")
        future = producer.send_soon("orders", b"1")
        self.assertIsInstance(future.exception(), ConnectionError)
        self.assertEqual(producer.messages, [])

    def test_a_transaction_is_kept_when_its_block_ends(self) -> None:
        """It is not recorded after a rollback, or when the block raises."""
        producer = RecordingProducer(on_check=lambda message: None)
        with producer.transaction("orders", b"1"):
            self.assertEqual(producer.messages, [])
        with producer.transaction("orders", b"2") as transaction:
            transaction.rollback()
        with self.assertRaises(ValueError), producer.transaction("orders", b"3"):
            raise ValueError
        self.assertEqual([each.body for each in producer.messages], [b"1"])
        self.assertRaises(OptionError, RecordingProducer().transaction, "orders", b"4")

    def test_a_request_gets_the_reply_that_the_test_makes(self) -> None:
        """Without one it times out."""
        producer = RecordingProducer()
        self.assertRaises(RequestTimeout, producer.request, "quotes", b"EUR")
        producer.reply = lambda message: b"re: " + message.body
        self.assertEqual(producer.request("quotes", b"EUR").body, b"re: EUR")
        self.assertEqual([each.body for each in producer.messages], [b"EUR", b"EUR"])

    def test_a_timed_message_is_dropped_when_it_is_recalled(self) -> None:
        """Only that message is dropped; others remain."""
        producer = RecordingProducer()
        plain = producer.send("orders", b"1")
        timed = producer.send("orders", b"2", delay_s=1)
        producer.recall(timed)
        self.assertEqual([each.body for each in producer.messages], [b"1"])
        self.assertRaises(OptionError, producer.recall, timed)
        self.assertRaises(OptionError, producer.recall, plain)

    def test_a_closed_one_takes_nothing(self) -> None:
        """It behaves as a producer."""
        producer = RecordingProducer()
        producer.close()
        self.assertRaises(Closed, producer.send, "orders", b"1")

    def test_it_has_the_signatures_of_a_producer(self) -> None:
        """Names, kinds, defaults and types of parameters; so a program cannot tell them apart."""
        for name, method in inspect.getmembers(Producer, inspect.isfunction):
            if name.startswith("_") and name != "__init__":
                continue
            own = inspect.signature(getattr(RecordingProducer, name))
            self.assertEqual(list(own.parameters.values()),
                             list(inspect.signature(method).parameters.values()), msg=name)
        for name, value in inspect.getmembers(Producer, lambda each: isinstance(each, property)):
            self.assertIsInstance(getattr(RecordingProducer, name), type(value), name)

    def test_it_takes_the_options_of_a_client_too(self) -> None:
        """They are checked as by a client."""
        producer = RecordingProducer("127.0.0.1:9876", namespace="shop", timeout_s=1.5)
        self.assertEqual(producer.send("orders", b"1").queue.topic, "orders")
        self.assertRaises(OptionError, RecordingProducer, retries=-1)

    def test_it_needs_no_twisted(self) -> None:
        """msgspec is all that it needs beside this package."""
        code = ("import sys\nfrom twistmq.client.testing import RecordingProducer\n"
                "RecordingProducer().send('orders', b'1')\n"
                "print([name for name in ('twisted', 'zope', 'pluggy', 'asyncio')"
                " if name in sys.modules])")
        output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                check=True).stdout
        self.assertEqual(output.strip(), "[]")
