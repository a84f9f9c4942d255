"""The pytest fixture ``twistmq_broker``: a name server and a broker for one test.

pytest imports this module in every run where twistmq is installed, so it imports nothing else
until the fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from twistmq.broker.testing.running import RunningBroker

__all__ = ["twistmq_broker"]


def pytest_report_header() -> list[str]:
    """A line above the tests if they would run compiled modules of other sources."""
    from twistmq.broker.compiled import build_warning

    warning = build_warning()
    return [f"twistmq: {warning}"] if warning else []


@pytest.fixture
def twistmq_broker() -> Iterator[RunningBroker]:
    """A name server and a broker on free ports, with a store of their own.

    ``twistmq_broker.namesrv_address`` is what a client is configured with.
    """
    from twistmq.broker.testing.running import running_broker

    with running_broker() as broker:
        yield broker
