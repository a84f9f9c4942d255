"""The page of the broker: its examples run as they are printed."""

from __future__ import annotations

from pathlib import Path

from tests.integrations import page_examples
from tests.integrations.taskiq.case import TaskiqCase
from twistmq.integrations.taskiq import TwistmqBroker


class ExampleTests(TaskiqCase, page_examples.BrokerPageCase):
    """The examples, the test and the options of the page."""

    page = (Path(__file__).resolve().parents[3] / "integrations/taskiq/README.md").read_text()
    broker_class = TwistmqBroker
    worker = ("-m", "taskiq", "worker", "--workers", "1", "shop:broker")
    worker_status = None
