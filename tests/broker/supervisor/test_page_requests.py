"""Requests for the pages of brokers."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.supervisor.page_requests import PATIENCE, ask_pages

ROOT = Path(__file__).resolve().parents[3]


class AskingTests(SynchronousTestCase):
    """Brokers that do not answer."""

    def test_a_broker_that_does_not_answer_costs_little(self) -> None:
        """A broker may refuse connections, or accept them and not answer."""
        reactor = MemoryReactorClock()
        asked = ask_pages(reactor, {"b-0": "http://127.0.0.1:1/", "b-1": "http://127.0.0.1:2/"})
        protocol = reactor.tcpClients[1][2].buildProtocol(None)
        protocol.makeConnection(StringTransport())
        reactor.advance(PATIENCE - 0.1)
        self.assertNoResult(asked)
        reactor.advance(0.2)
        answers = self.successResultOf(asked)
        self.assertEqual([(name, answer.status) for name, answer in answers.items()],
                         [("b-0", 0), ("b-1", 0)])
        self.assertTrue(all(answer.fault for answer in answers.values()))

    def test_who_asks_waits_longer(self) -> None:
        """The health check of the image waits longer than a broker is waited for."""
        text = (ROOT / "deploy/Containerfile").read_text()
        [seconds] = re.findall(r"/health', timeout=([0-9]+)", text)
        self.assertLess(PATIENCE, int(seconds))
