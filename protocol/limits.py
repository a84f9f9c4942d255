"""Limits that the decoders of bodies enforce, each with its unit and reason.

``twistmq.broker.constants`` contains the limits that a server sets for itself.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DATA_VERSION_SIZE_MAX", "FILTER_SERVERS_MAX", "ROUTE_TEXT_SIZE_MAX"]

#: Bytes of a name or address with which a broker registers, and of a topic name. A host name has
#: at most 253 bytes, and the retry topic of a group 262.
ROUTE_TEXT_SIZE_MAX: Final = 512
#: Filter servers of one broker; by default Apache starts none (filterServerNums @5.3.3).
FILTER_SERVERS_MAX: Final = 8
#: Bytes of a data version (in request 322, and in a registration), which has three numbers.
DATA_VERSION_SIZE_MAX: Final = 1024
