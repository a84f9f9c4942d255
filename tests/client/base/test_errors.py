"""The classes of the client's errors."""

from __future__ import annotations

import copy
import pickle

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client import (
    Attempt,
    Busy,
    ClientError,
    ConnectTimeout,
    Full,
    NoRoute,
    RemotingTimeout,
    RequestTimeout,
    RouteTimeout,
    SendFailed,
    TopicMissing,
)


def _failed(*errors: ClientError) -> SendFailed:
    return SendFailed("T", [Attempt("b", 1.0, error) for error in errors])


class SendFailedTests(SynchronousTestCase):
    """A failed send has the class of its attempts."""

    def test_attempts_that_were_refused_alike(self) -> None:
        """A program finds the class of the refusal, however often the send was tried."""
        for kind, code in ((TopicMissing, 17), (Busy, 2)):
            error = _failed(*[kind(code, "no")] * 3)
            self.assertIsInstance(error, kind)
            self.assertNotIsInstance(error, TimeoutError)
            self.assertEqual((error.retriable, error.response_code), (kind.retriable, code))

    def test_attempts_that_all_timed_out(self) -> None:
        """The time-outs may be at brokers, at name servers, or when a connection is opened."""
        error = _failed(RemotingTimeout("t"), RouteTimeout("t"), ConnectTimeout("t"))
        self.assertIsInstance(error, TimeoutError)
        self.assertTrue(error.retriable)
        self.assertIn("after 1 ms: t", str(error))

    def test_attempts_that_failed_in_different_ways(self) -> None:
        """The error is a plain SendFailed; it is retriable if one of the attempts is."""
        for errors in ((RemotingTimeout("t"), Busy(2, "no")),
                       (TopicMissing(17, "no"), Busy(2, "no")), (NoRoute("no"),), ()):
            error = _failed(*errors)
            self.assertIs(type(error), SendFailed)
            self.assertTrue(error.retriable)

    def test_copies_keep_their_class(self) -> None:
        """This is so in another process as well."""
        for each in (RemotingTimeout("t"), TopicMissing(17, "no"), NoRoute("no")):
            error = _failed(each)
            for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
                self.assertIs(type(again), type(error))
                self.assertEqual((str(again), again.topic, again.retriable),
                                 (str(error), "T", error.retriable))

    def test_what_took_too_long(self) -> None:
        """Each of these errors is also a TimeoutError of Python."""
        for kind in (Full, RouteTimeout, ConnectTimeout, RemotingTimeout, RequestTimeout):
            self.assertTrue(issubclass(kind, TimeoutError), msg=kind.__name__)
