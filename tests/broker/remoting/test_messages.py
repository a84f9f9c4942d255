"""Responses that wait."""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.remoting.messages import (
    DeferredReply,
    Handled,
    Reply,
    defer_until,
    now_or_later,
)
from twistmq.protocol.codes import ResponseCode


class HoldUntilTests(SynchronousTestCase):
    """The function ``defer_until``."""

    def test_what_waits(self) -> None:
        """Successful replies wait and leave in one write; refusals do not wait."""
        until: Deferred[None] = Deferred()
        refused, late = Reply(ResponseCode.SYSTEM_ERROR), Deferred[Reply]()
        answers: list[Handled] = [Reply(), refused, None, late, Reply()]
        defer_until(until, answers)
        self.assertEqual(answers[1:4], [refused, None, late])
        for answer in (answers[0], answers[4]):
            assert isinstance(answer, DeferredReply)
            self.assertIs(answer.until, until)

    def test_what_waits_already(self) -> None:
        """Such a reply waits for both, in any order; those that wait together stay together."""
        for first in (0, 1):
            until: Deferred[None] = Deferred()
            flushed: Deferred[None] = Deferred()
            answers: list[Handled] = [
                DeferredReply(Reply(), flushed), DeferredReply(Reply(), flushed)]
            defer_until(until, answers)
            self.assertEqual([answer.until for answer in answers
                              if isinstance(answer, DeferredReply)],
                             [flushed, flushed])
            fired: list[object] = []
            flushed.addCallback(fired.append)
            for deferred in (until, flushed) if first else (flushed, until):
                self.assertEqual(fired, [])
                deferred.callback(None)
            self.assertEqual(fired, [None])

    def test_what_fails(self) -> None:
        """An answer that cannot be given is not waited with."""
        until: Deferred[None] = Deferred()
        failed: Deferred[None] = Deferred()
        defer_until(until, [DeferredReply(Reply(), failed)])
        failed.errback(ValueError())
        self.failureResultOf(failed, ValueError)


class NowOrLaterTests(SynchronousTestCase):
    """The function now_or_later."""

    def test_a_value_is_returned_and_a_deferred_is_waited_for(self) -> None:
        """A result is returned, a failure is raised, and a Deferred without either is returned."""
        reply = Reply()
        self.assertIs(now_or_later(succeed(reply)), reply)
        self.assertRaises(ValueError, now_or_later, fail(ValueError()))
        waiting: Deferred[Reply] = Deferred()
        self.assertIs(now_or_later(waiting), waiting)
        waiting.callback(reply)
        self.assertIs(self.successResultOf(waiting), reply)
