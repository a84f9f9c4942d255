"""The page of the broker: its examples run as they are printed."""

from __future__ import annotations

from pathlib import Path

from tests.integrations import page_examples
from tests.integrations.dramatiq.case import DramatiqCase
from twistmq.integrations.dramatiq import TwistmqBroker


class ExampleTests(DramatiqCase, page_examples.BrokerPageCase):
    """The examples, the test and the options of the page."""

    page = (Path(__file__).resolve().parents[3] / "integrations/dramatiq/README.md").read_text()
    broker_class = TwistmqBroker
    worker = ("-m", "dramatiq", "-p", "2", "-t", "2", "shop")
