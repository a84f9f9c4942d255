"""The request CHANGE_MESSAGE_INVISIBLETIME."""

from __future__ import annotations

from tests.plugins.pop.case import PopTestCase
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pop import ChangeInvisibleTimeRequestHeader


class ChangeTests(PopTestCase):
    """The time for which a message is invisible is changed."""

    def test_a_message_hidden_shorter_comes_again_sooner(self) -> None:
        """The message is delivered again before the others."""
        self.send_some(2, 1)
        popped = self.pop(invisible_ms=20_000)
        self.hide(popped[0], 2000)
        self.pass_time(5000)
        self.assertEqual(self.retries(), [b"0"])
        self.pass_time(19_000)
        self.assertEqual(self.retries(), [b"0", b"1"])

    def test_a_message_hidden_longer_comes_again_once(self) -> None:
        """The message is delivered again after the others, and once."""
        self.send_some(2, 1)
        popped = self.pop()
        self.hide(popped[0], 20_000)
        self.pass_time(10_000)
        self.assertEqual(self.retries(), [b"1"])
        self.pass_time(15_000)
        self.assertEqual(self.retries(), [b"1", b"0"])

    def test_acknowledged_then(self) -> None:
        """The new receipt is valid for an acknowledgement, and the change does not
        count as a try.
        """
        self.send(b"x")
        [popped] = self.pop()
        again = self.hide(popped, 10_000)
        self.box.now_ms += 6000
        self.ack(again)
        self.pass_time(15_000)
        self.assertEqual(self.retries(), [])

    def test_in_the_same_millisecond(self) -> None:
        """Old and new check point are two. In Apache's broker they are one, and it is lost."""
        self.send(b"x")
        [popped] = self.pop()
        again = self.hide(popped, 3000)
        self.assertNotEqual(again.receipt.split(" ")[1], popped.receipt.split(" ")[1])
        self.pass_time(8000)
        self.assertEqual(self.retries(), [b"x"])

    def test_refusals_have_apaches_codes(self) -> None:
        """Each refusal has the code of Apache's broker."""
        self.send(b"x")
        [popped] = self.pop()
        for change, code in (
            ({"topic": "no"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"queue_id": 99}, ResponseCode.MESSAGE_ILLEGAL),
            ({"offset": 1}, ResponseCode.NO_MESSAGE),
            ({"extra_info": ""}, ResponseCode.SYSTEM_ERROR),
            ({"invisible_time": 10**10}, ResponseCode.SYSTEM_ERROR),
            ({"consumer_group": "no"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ({"extra_info": "0 1 1 999 0 b 0 0"}, ResponseCode.MESSAGE_ILLEGAL),
        ):
            header = ChangeInvisibleTimeRequestHeader(
                consumer_group="g", topic="T", queue_id=0, extra_info=popped.receipt, offset=0,
                invisible_time=1000)
            for name, value in change.items():
                setattr(header, name, value)
            reply = self.box.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
            self.assertEqual(reply.code, code, msg=str(change))
        # What could not be hidden for another time is as it was.
        self.ack(popped)
        self.pass_time(8000)
        self.assertEqual(self.retries(), [])

    def test_not_given_out(self) -> None:
        """A message that was not popped stays visible, and is delivered once."""
        self.send_some(3, 1)
        [first] = self.pop(count=1)
        self.pop(order=True, group="in_order", count=1)
        for group, extra_info in (("g", first.receipt), ("other", first.receipt),
                                  ("in_order", "0 1700000000000 5000 999 0 broker-a 0 0")):
            self.box.kernel.subscription_group.find(group)
            reply = self.box.ask(
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequestHeader(
                    consumer_group=group, topic="T", queue_id=0, extra_info=extra_info,
                    offset=2, invisible_time=1000))
            self.assertEqual(reply.code, ResponseCode.MESSAGE_ILLEGAL, msg=group)
        self.pass_time(10_000)
        self.assertEqual(self.retries(), [b"0"])
        [info] = self.service.state.orders._table["T@in_order"].values()
        self.assertIsNone(info.offset_next_visible_time)

    def test_in_order(self) -> None:
        """The queue stays locked for that time."""
        self.send_some(2, 1)
        [first] = self.pop(order=True, count=1)
        again = self.hide(first, 2000)
        self.assertEqual(self.pop(order=True), [])
        self.box.now_ms += 2001
        popped = self.pop(order=True)
        self.assertEqual([each.body for each in popped], [b"0", b"1"])
        # It belongs to a pop that is over.
        self.ack(again)
        self.assertEqual(self.offset(), 0)
