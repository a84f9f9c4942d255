"""Taskiq on twistmq: a broker for its tasks.

    from twistmq.integrations.taskiq import TwistmqBroker

    broker = TwistmqBroker("127.0.0.1:9876")
"""

from __future__ import annotations

from twistmq.integrations.taskiq.broker import TwistmqBroker

__all__ = ["TwistmqBroker"]
