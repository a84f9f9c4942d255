"""A short form of the long attack, in every run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import Servers, rss_anon_kib
from tests.long.malformed import GROWTH_MAX_KIB, attack

FRAMES = 4000


class MalformedTests(SynchronousTestCase):
    """Thousands of wrong frames against live servers."""

    def test_good_client_never_notices(self) -> None:
        """A good client is served all the time, and no internal error is logged."""
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        servers = Servers(Path(folder.name))
        servers.start()
        self.addCleanup(servers.stop)
        before = rss_anon_kib(servers.pid)
        running, good = attack(servers, FRAMES, 7)
        self.assertGreaterEqual(running.sent, FRAMES)
        self.assertGreater(running.closed, 0)
        self.assertGreater(len(running.replies), 3)
        self.assertGreater(good.operations, 0)
        self.assertEqual(good.failures, [])
        self.assertNotIn("Traceback", servers.log())
        self.assertLess(rss_anon_kib(servers.pid) - before, GROWTH_MAX_KIB)
