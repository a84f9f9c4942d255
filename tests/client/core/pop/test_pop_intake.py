"""The close of a pop member."""

from __future__ import annotations

from typing import Any

from tests.client.core.pop.pop_case import PopCase
from tests.client.core.pop_box import BROKER
from twistmq.client.base.errors import Closed
from twistmq.protocol.codes import RequestCode, ResponseCode


class CloseTests(PopCase):
    """The close of a pop member."""

    def test_a_close_waits_for_handlers_and_gives_back_the_rest(self) -> None:
        """After the close, no message is hidden, and the finished messages are acknowledged."""
        box = self.start()
        batch = self.take(3)
        closing = box.engine.tasks.spawn(box.member.close(10_000), "close")
        box.advance(5000)
        self.assertFalse(closing.is_done)
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertTrue(closing.is_done)
        self.assertEqual(box.broker.acks, [0, 2, 4])
        self.assertEqual(box.broker.open(), [1, 3, 5, 6, 7, 8, 9])
        self.assertEqual(box.broker.members, set())
        with self.assertRaises(Closed):
            box.run(box.member.ready())

    def test_a_close_waits_for_acknowledgements_that_are_tried_again(self) -> None:
        """A finished message is not delivered again if a broker was busy for a moment."""
        box = self.start(1)
        batch = self.take()
        box.broker.refusals = {RequestCode.ACK_MESSAGE: ResponseCode.SYSTEM_BUSY}
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        closing = box.engine.tasks.spawn(box.member.close(10_000), "close")
        box.advance(500)
        self.assertFalse(closing.is_done)
        box.broker.refusals = {}
        box.advance(3000)
        self.assertTrue(closing.is_done)
        self.assertEqual(box.broker.acks, [0])

    def test_a_handler_that_does_not_end_has_its_message_given_back(self) -> None:
        """Its late result does not count."""
        box = self.start(1)
        batch = self.take()
        box.run(box.member.close(2000))
        self.assertEqual(box.broker.open(), [0])
        box.member.succeed(batch.assigned, batch.messages)
        box.settle()
        self.assertEqual(box.broker.acks, [])

    def test_messages_of_a_pop_that_ends_too_late_are_given_back(self) -> None:
        """The client is shared, so its connections remain open."""
        box = self.start(0)
        answered: list[Any] = []
        serve = box.broker

        def late(command: Any) -> Any:
            if command.code == RequestCode.POP_MESSAGE:
                answered.append(command)
                return None
            return serve(command)

        box.servers[BROKER] = late
        box.demand()
        box.run(box.member.close(1000))
        serve.put(b"1")
        code, header, body, _ = serve(answered[-1])  # type: ignore[misc]
        box.reply(BROKER, answered[-1], code, header, body)
        box.settle()
        self.assertEqual(serve.open(), [1])
        self.assertEqual(len(serve.changes), 1)

    def test_a_close_ends_although_no_broker_answers(self) -> None:
        """It ends within a few seconds."""
        box = self.start(3)
        batch = self.take(1)
        box.broker.silent = {RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE,
                             RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                             RequestCode.UNREGISTER_CLIENT}
        box.member.succeed(batch.assigned, batch.messages)
        begin_ms = box.clock.now_ms
        box.run(box.member.close(1000))
        self.assertLess(box.clock.now_ms - begin_ms, 15_000)
