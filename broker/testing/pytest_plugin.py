"""The pytest fixtures ``twistmq_broker``, ``twistmq_producer`` and ``twistmq_consumer``.

pytest imports this module in every run if twistmq is installed, so the module does not import
anything else until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from twistmq.broker.testing.in_process_broker import RunningBroker
    from twistmq.client import Consumer, Producer

__all__ = ["twistmq_broker", "twistmq_consumer", "twistmq_producer"]


def pytest_report_header() -> list[str]:
    """Return a line for the report's header if compiled modules do not match their sources."""
    from twistmq.broker.compiled import build_warning

    warning = build_warning()
    return [f"twistmq: {warning}"] if warning else []


@pytest.fixture
def twistmq_broker() -> Iterator[RunningBroker]:
    """A name server and a broker on free ports, with their own store.

    A client is configured with ``twistmq_broker.namesrv_address``.
    """
    from twistmq.broker.testing.in_process_broker import running_broker

    with running_broker() as broker:
        yield broker


@pytest.fixture
def twistmq_producer(twistmq_broker: RunningBroker) -> Iterator[Producer]:
    """A producer for ``twistmq_broker``."""
    from twistmq.client import Producer

    with Producer(twistmq_broker.namesrv_address) as producer:
        yield producer


@pytest.fixture
def twistmq_consumer(twistmq_broker: RunningBroker) -> Iterator[Callable[..., Consumer[Any]]]:
    """A factory of consumers for ``twistmq_broker``: ``twistmq_consumer("orders")``.

    Keyword arguments are options of ``Consumer``. Without ``group``, the group is "tests", and it
    starts with the first message. The consumers are closed after the test.
    """
    from twistmq.client import Consumer

    with ExitStack() as stack:
        def make(topics: Any, **options: Any) -> Consumer[Any]:
            arguments = {"group": "tests", "start": "first", **options}
            return stack.enter_context(
                Consumer(twistmq_broker.namesrv_address, topics=topics, **arguments))

        yield make
