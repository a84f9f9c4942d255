"""The members of a group with the addresses of their peer ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PeerGroup"]


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
