"""Limits that the decoders of bodies keep, each with its unit and its reason.

The limits that a server sets for itself stand in ``twistmq.broker.constants``.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DATA_VERSION_SIZE_MAX", "FILTER_SERVERS_MAX", "ROUTE_TEXT_SIZE_MAX"]

#: Bytes of a name or an address that a broker registers with, and of a topic's name: a host's name
#: has 253, a group's retry topic 262.
ROUTE_TEXT_SIZE_MAX: Final = 512
#: Filter servers of one broker; Apache starts none unless told (filterServerNums @5.3.3).
FILTER_SERVERS_MAX: Final = 8
#: Bytes of a data version (322, and in a registration): three numbers.
DATA_VERSION_SIZE_MAX: Final = 1024
