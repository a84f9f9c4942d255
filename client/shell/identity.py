"""The identity of a client: its id at brokers and the unique ids of its messages.

Source: ClientConfig.buildMQClientId @5.3.3.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["new_client_id", "process_ids", "randrange"]


def new_client_id(ip: str, instance: str = "", unit: str = "") -> str:
    """Return the id of a client: ``ip@instance@unit``.

    Differs from Apache: if the instance has no name, the id contains four random bytes in addition
    to process and time, so that two containers do not get the same id.
    """
    name = instance or f"{os.getpid()}#{time.time_ns()}{os.urandom(4).hex()}"
    return "@".join([ip, name, unit] if unit else [ip, name])


def process_ids(client_id: str) -> Callable[[int], str]:
    """Return a function that makes unique ids for all threads; its argument is the Unix ms.

    :param client_id: the client's id; it begins with the address that goes into the ids.
    """
    # Imported here, because a client that only sends requests does not need it.
    from ipaddress import ip_address

    from twistmq.client.core.producer import unique_id

    return unique_id.process_ids(ip_address(client_id.partition("@")[0]).packed).make


def randrange(bound: int) -> int:
    """Return a random number below a bound; importing ``random`` would take long."""
    return int.from_bytes(os.urandom(8)) % bound
