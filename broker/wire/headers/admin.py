"""Headers of looking after a broker (26). Source: GetBrokerConfigResponseHeader @5.3.3."""

from __future__ import annotations

from twistmq.broker.wire.header import CommandHeader

__all__ = ["GetBrokerConfigResponseHeader"]


class GetBrokerConfigResponseHeader(CommandHeader):
    """Which version of the settings the body shows."""

    #: A DataVersion as JSON.
    version: str
