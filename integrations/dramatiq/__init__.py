"""Dramatiq on twistmq: a broker for its actors.

    from twistmq.integrations.dramatiq import TwistmqBroker

    dramatiq.set_broker(TwistmqBroker("127.0.0.1:9876"))
"""

from __future__ import annotations

from twistmq.integrations.dramatiq.broker import TwistmqBroker

__all__ = ["TwistmqBroker"]
