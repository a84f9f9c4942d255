"""The messages that handlers get, and the results of their calls."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.base.errors import Undecodable
from twistmq.client.base.handlers import Dead, Retry
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.consumer.assigned_queues import Batch
from twistmq.client.core.consumer.handler_calls import HandlerCalls, Steps, await_steps, run_steps
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.record import MAGIC_V1, StoredMessage


def message(body: bytes, offset: int) -> ReceivedMessage[int]:
    """Return a message whose value is the number in its body."""
    record = StoredMessage(0, MAGIC_V1, 0, 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0,
                           body, "T", "")
    return ReceivedMessage(
        record, MessageQueue("T", "b", 0), offset, "T", lambda each: int(each.body))


class HandlingTests(SynchronousTestCase):
    """The module client/core/consumer/handler_calls.py, with a member that records results."""

    def setUp(self) -> None:
        """Clear the results, and begin a queue."""
        self.told: list[tuple[Any, ...]] = []
        self.assigned = SimpleNamespace(begun_offset=-1)
        self.end = 0

    def handling(self, *, in_order: bool = False, undecodable: str = "retry") -> HandlerCalls[int]:
        """Return the handling of a new member."""
        def noted(name: str) -> Callable[..., None]:
            def note(_: Any, messages: list[ReceivedMessage[int]], *level: int) -> None:
                self.told.append((name, [each.body for each in messages], *level))
            return note

        member = SimpleNamespace(
            options=SimpleNamespace(in_order=in_order), succeed=noted("succeed"),
            fail=noted("fail"), release=noted("release"))
        return HandlerCalls(cast(Any, member), undecodable,
                        lambda function, *arguments: function(*arguments))

    def batch(self, *bodies: bytes) -> Batch[int]:
        """Return a batch of the next messages of the queue."""
        messages = [message(body, self.end + index) for index, body in enumerate(bodies)]
        self.end += len(bodies)
        return Batch(cast(Any, self.assigned), messages)

    def test_each_message_ends_by_itself(self) -> None:
        """The end may be a result, an error, a level, or a dead message."""
        errors = {b"2": ValueError("a fault"), b"3": Retry(4), b"4": Dead()}

        def handler(each: ReceivedMessage[int]) -> None:
            if each.body in errors:
                raise errors[each.body]

        run_steps(self.handling().one_by_one(self.batch(b"1", b"2", b"3", b"4", b"5")), handler)
        self.assertEqual(self.told, [
            ("succeed", [b"1"]), ("fail", [b"2"], 0), ("fail", [b"3"], 4), ("fail", [b"4"], -1),
            ("succeed", [b"5"])])

    def test_a_failure_in_order_lets_the_later_messages_wait(self) -> None:
        """They are not handled before the failed one."""
        def handler(each: ReceivedMessage[int]) -> None:
            raise Retry

        run_steps(self.handling(in_order=True).one_by_one(self.batch(b"1", b"2", b"3")), handler)
        self.assertEqual(self.told, [("fail", [b"1"], 0), ("release", [b"2", b"3"])])

    def test_a_stop_or_a_lost_queue_lets_the_other_messages_wait(self) -> None:
        """The handler of the current message ends normally."""
        handling = self.handling()

        def stop(each: ReceivedMessage[int]) -> None:
            handling.is_stopped = True

        run_steps(handling.one_by_one(self.batch(b"1", b"2")), stop)
        lost = self.batch(b"3", b"4")
        lost.messages[0].lost = True
        run_steps(self.handling().one_by_one(lost), stop)
        self.assertEqual(self.told, [
            ("succeed", [b"1"]), ("release", [b"2"]), ("release", [b"3", b"4"])])

    def test_a_stop_leaves_no_message_out_before_one_that_was_handled(self) -> None:
        """A worker that took it earlier may come to its handler later: the group has one offset."""
        for is_list in (False, True):
            self.told.clear()
            handling = self.handling()
            call = handling.as_list if is_list else handling.one_by_one
            earliest, earlier, later, last = (self.batch(body) for body in (b"1", b"2", b"3", b"4"))

            def stop(each: object, handling: HandlerCalls[int] = handling) -> None:
                handling.is_stopped = True

            for batch in (later, last, earlier, earliest):
                run_steps(call(batch), stop)
            self.assertEqual(self.told, [
                ("succeed", [b"3"]), ("release", [b"4"]), ("succeed", [b"2"]),
                ("succeed", [b"1"])], msg=f"lists: {is_list}")
            self.assigned = SimpleNamespace(begun_offset=-1)
            run_steps(call(self.batch(b"5")), stop)
            self.assertEqual(self.told[-1], ("release", [b"5"]), msg="another queue")

    def test_a_list_of_a_lost_queue_waits_again(self) -> None:
        """Another member handles its messages."""
        lost = self.batch(b"1", b"2")
        lost.messages[0].lost = True
        run_steps(self.handling().as_list(lost), lambda each: self.fail("a handler was called"))
        self.assertEqual(self.told, [("release", [b"1", b"2"])])

    def test_a_worker_that_is_cancelled_lets_its_messages_wait(self) -> None:
        """They are delivered again; an end that is no Exception is not a result."""
        def handler(each: Any) -> None:
            raise KeyboardInterrupt

        for steps in (self.handling().one_by_one(self.batch(b"1", b"2")),
                      self.handling().as_list(self.batch(b"1", b"2"))):
            self.assertRaises(KeyboardInterrupt, run_steps, steps, handler)
        self.assertEqual(self.told, [("release", [b"1", b"2"])] * 2)

    def test_the_option_says_what_becomes_of_a_message_without_a_value(self) -> None:
        """The other messages are handled, unless it ends the run."""
        def steps(handling: HandlerCalls[int], is_list: bool) -> Steps:
            batch = self.batch(b"1", b"x", b"2")
            return handling.as_list(batch) if is_list else handling.one_by_one(batch)

        for is_list, ends in ((False, [("succeed", [b"1"]), ("succeed", [b"2"])]),
                              (True, [("succeed", [b"1", b"2"])])):
            for option, end in (("retry", "fail"), ("skip", "succeed")):
                self.told.clear()
                run_steps(steps(self.handling(undecodable=option), is_list), lambda each: None)
                self.assertEqual(sorted(self.told), sorted([*ends, (end, [b"x"])]), msg=option)
        for is_list, told in ((False, [("succeed", [b"1"]), ("release", [b"x", b"2"])]),
                              (True, [("release", [b"1", b"x", b"2"])])):
            self.told.clear()
            self.assertRaises(Undecodable, run_steps, steps(
                self.handling(undecodable="raise"), is_list), lambda each: None)
            self.assertEqual(self.told, told)

    def test_a_list_ends_as_far_as_its_handler_came(self) -> None:
        """A result that is neither None nor a number fails all messages of the list."""
        for result, told in ((None, [("succeed", [b"1", b"2"])]),
                             (1, [("succeed", [b"1"]), ("fail", [b"2"])]),
                             (0, [("fail", [b"1", b"2"])]),
                             (9, [("succeed", [b"1", b"2"])]),
                             ("all", [("fail", [b"1", b"2"], 0)])):
            self.told.clear()
            run_steps(self.handling().as_list(self.batch(b"1", b"2")),
                      lambda each, result=result: result)
            self.assertEqual(self.told, told, msg=repr(result))

    def test_an_awaited_handler_has_the_same_ends(self) -> None:
        """The calls follow one another."""
        async def handler(each: ReceivedMessage[int]) -> None:
            if each.body == b"1":
                raise Retry

        running = await_steps(self.handling().one_by_one(self.batch(b"1", b"2")), handler)
        self.assertRaises(StopIteration, running.send, None)
        self.assertEqual(self.told, [("fail", [b"1"], 0), ("succeed", [b"2"])])
