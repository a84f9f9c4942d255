"""The pages of an exporter, requested without a connection."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import NOT_DONE_YET
from twisted.web.test.requesthelper import DummyRequest

from twistmq.plugins.metrics.pages import root_page


class MetricsPageTests(SynchronousTestCase):
    """The request GET /metrics."""

    def setUp(self) -> None:
        self.scrapes: list[Deferred[bytes]] = []

        def scrape() -> Deferred[bytes]:
            self.scrapes.append(Deferred())
            return self.scrapes[-1]

        self.page = root_page(scrape, {}, dict).children[b"metrics"]

    def ask(self) -> DummyRequest:
        request = DummyRequest([b"metrics"])
        written = self.page.render(request)
        if written != NOT_DONE_YET:
            request.write(written)
        return request

    def test_too_many_wait(self) -> None:
        """Requests above a limit are refused, so that they cannot use all connections."""
        first, *_, last = [self.ask() for _ in range(32)]
        refused = self.ask()
        self.assertEqual((refused.responseCode, len(self.scrapes)), (503, 32))
        self.assertIn(b"wait", b"".join(refused.written))
        self.scrapes[0].callback(b"page")
        self.assertEqual(first.written, [b"page"])
        last.processingFailed(Failure(ConnectionDone()))
        codes = [self.ask().responseCode for _ in range(3)]
        self.assertEqual((codes, len(self.scrapes)), ([None, None, 503], 34))
