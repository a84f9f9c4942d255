"""The members of a group with the addresses of their peer ports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twistmq.broker.api.wire import split_address

__all__ = ["MEMBER_ID", "PeerGroup", "read_peers"]

#: The id of a member: a letter and a number, from which its broker id follows.
MEMBER_ID: Final = re.compile(r"[A-Za-z]([0-9]{1,9})")


def read_peers(text: str) -> dict[str, str]:
    """Read a list of members, ID-HOST:PORT separated by semicolons.

    :returns: "host:port" by the id of each member, in the order of the list.
    :raises ValueError: when the list is not valid; the text is the rest of a sentence about it.
    """
    addresses: dict[str, str] = {}
    for each in filter(None, map(str.strip, text.split(";"))):
        member, dash, address = each.partition("-")
        try:
            _, port = split_address(address)
        except ValueError:
            port = 0
        if not dash or not MEMBER_ID.fullmatch(member) or not port:
            raise ValueError(f"contains {each!r}, which is not ID-HOST:PORT")
        if member in addresses:
            raise ValueError(f"has the member {member} twice")
        if address in addresses.values():
            raise ValueError(f"has the address {address} twice")
        addresses[member] = address
    return addresses


@dataclass(frozen=True, slots=True)
class PeerGroup:
    """The name of a group, the id of this member, and "host:port" of every member by its id.

    :raises ValueError: when this member is not in the group.
    """

    name: str
    member_id: str
    addresses: Mapping[str, str]

    def __post_init__(self) -> None:
        """Check that this member is in its group."""
        if self.member_id not in self.addresses:
            raise ValueError(f"the member {self.member_id} is not in its group "
                             f"{', '.join(self.addresses)}")

    def is_peer(self, member: str) -> bool:
        """Return whether an id belongs to another member of the group."""
        return member in self.addresses and member != self.member_id
