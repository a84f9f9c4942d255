"""The request NOTIFICATION."""

from __future__ import annotations

from tests.plugins.pop.case import PopTestCase
from twistmq.broker.testing.kernel import Peer
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pop import NotificationRequestHeader, NotificationResponseHeader


class NotificationTests(PopTestCase):
    """A client learns whether messages are available for a pop."""

    def header(self, poll_ms: int = 0, queue_id: int = -1, order: bool = False
               ) -> NotificationRequestHeader:
        return NotificationRequestHeader(
            consumer_group="g", topic="T", queue_id=queue_id, poll_time=poll_ms,
            born_time=self.box.now_ms, order=order)

    def has_message(self, queue_id: int = -1, order: bool = False) -> bool:
        reply = self.box.ask(RequestCode.NOTIFICATION, self.header(0, queue_id, order))
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        return reply.header(NotificationResponseHeader).has_msg

    def told(self, peer: Peer) -> list[bool]:
        return [reply.header(NotificationResponseHeader).has_msg
                for reply in self.box.late_replies(peer)]

    def test_available_messages_are_notified_at_once(self) -> None:
        """All queues or one are checked; no message is popped."""
        self.send(b"x", queue_id=1)
        self.assertEqual([self.has_message(queue_id) for queue_id in (-1, 0, 1, 1)],
                         [True, False, True, True])
        self.assertEqual(len(self.pop()), 1)
        self.assertFalse(self.has_message())

    def filtered(self, expression: str, poll_ms: int = 0, kind: str = "TAG"
                 ) -> NotificationRequestHeader:
        header = self.header(poll_ms)
        header.exp_type, header.exp = kind, expression
        return header

    def counts(self, expression: str) -> bool:
        reply = self.box.ask(RequestCode.NOTIFICATION, self.filtered(expression))
        self.assertEqual(reply.code, ResponseCode.SUCCESS, msg=reply.remark)
        return reply.header(NotificationResponseHeader).has_msg

    def test_messages_count_by_their_tag(self) -> None:
        """A message with an unwanted tag is not announced while few messages wait."""
        self.send(b"x", tag="red")
        self.assertEqual([self.counts(each) for each in ("red", "blue", "blue || red", "*")],
                         [True, False, True, True])
        self.restart(maxMessageFilterNumForNotification="1")
        self.assertTrue(self.counts("blue"), "it is not compared")
        self.restart(useMessageFilterForNotification="false")
        self.assertTrue(self.counts("blue"))

    def test_an_unknown_language_is_refused(self) -> None:
        """A language that no plugin provides is refused, as for a pop."""
        self.send(b"x")
        reply = self.box.ask(RequestCode.NOTIFICATION, self.filtered("a = 1", kind="SQL92"))
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92"))

    def test_a_wait_ends_with_a_message_that_matches(self) -> None:
        """A message with another tag does not end the wait."""
        peer = self.box.peer()
        self.send(b"w", tag="blue")
        self.box.send(peer, RequestCode.NOTIFICATION, self.filtered("red", 20_000))
        self.send(b"x", tag="blue")
        self.assertEqual(self.told(peer), [])
        self.send(b"y", tag="red")
        self.assertEqual(self.told(peer), [True])

    def test_retries_count(self) -> None:
        """Retries count as messages."""
        self.send(b"x")
        self.pop()
        self.pass_time(8000)
        self.assertTrue(self.has_message())

    def test_a_queue_that_is_closed_has_nothing(self) -> None:
        """A locked queue has no available messages."""
        self.send(b"x")
        self.pop(order=True)
        self.assertFalse(self.has_message(order=True))
        self.box.now_ms += 6000
        self.assertTrue(self.has_message(order=True))

    def test_a_notification_waits_for_a_message_a_retry_or_its_time(self) -> None:
        """The wait ends with a message, a retry, or the time-out."""
        self.send(b"x")
        self.pop()
        peers = [self.box.peer() for _ in range(3)]
        self.box.send(peers[0], RequestCode.NOTIFICATION, self.header(20_000))
        self.pass_time(8000)
        self.assertEqual(self.told(peers[0]), [True])
        self.pop()
        self.box.send(peers[1], RequestCode.NOTIFICATION, self.header(1000))
        self.pass_time(1000)
        self.assertEqual(self.told(peers[1]), [False])
        self.box.send(peers[2], RequestCode.NOTIFICATION, self.header(1000))
        self.send(b"y", queue_id=3)
        self.assertEqual(self.told(peers[2]), [True])

    def test_the_newest_first(self) -> None:
        """Among several equal waits the newest one is notified."""
        self.send(b"x")
        self.pop()
        peers = [self.box.peer() for _ in range(2)]
        for peer in peers:
            self.box.send(peer, RequestCode.NOTIFICATION, self.header(5000))
        self.send(b"y")
        self.assertEqual([self.told(peer) for peer in peers], [[], [True]])

    def test_polls_beyond_the_limit_are_refused(self) -> None:
        """Polls above the limit get a response that says so."""
        self.send(b"x")
        self.pop()
        self.restart(popPollingSize="0")
        self.box.send(self.box.peer(), RequestCode.NOTIFICATION, self.header(5000))
        reply = self.box.ask(RequestCode.NOTIFICATION, self.header(5000))
        self.assertTrue(reply.header(NotificationResponseHeader).polling_full)

    def test_a_notification_has_the_refusals_of_a_pop(self) -> None:
        """A notification is refused with the code of a refused pop."""
        self.assertEqual(self.box.ask(RequestCode.NOTIFICATION, self.header()).code,
                         ResponseCode.TOPIC_NOT_EXIST)
