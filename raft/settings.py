"""The settings of a member. The defaults are DLedger's; all durations are in milliseconds."""

from dataclasses import dataclass
from functools import cached_property

__all__ = ["MemberSettings"]


@dataclass(frozen=True)
class MemberSettings:
    """The identity of a member, its group, and its limits of time and size.

    :raises ValueError: when the member is not in its group, or a peer appears twice.
    """

    group: str
    member_id: str
    #: The ids of all members, this one included. Their order does not matter.
    members: tuple[str, ...]
    #: Members that should lead when they are able to.
    preferred_leaders: tuple[str, ...] = ()
    #: True: an entry counts at a member after it is synced. False: after it is written.
    durable: bool = True
    #: Whether an election starts at once when the leader's process is gone (``PeerRefused``).
    quick_failover: bool = False

    heartbeat_interval_ms: int = 2000
    #: A follower waits this many intervals for a heartbeat, a leader for a majority's answers.
    heartbeat_misses: int = 3
    vote_wait_min_ms: int = 300
    vote_wait_max_ms: int = 1000
    take_lead_wait_min_ms: int = 30
    take_lead_wait_max_ms: int = 100
    #: How long a candidate waits for the answers of one round of votes.
    vote_round_ms: int = 2000
    #: Each request is given up after this time.
    call_timeout_ms: int = 3000

    #: A push of entries fails after this time, and the logs are compared again.
    push_timeout_ms: int = 1000
    #: After a failed push, this time passes before the next comparison.
    push_pause_ms: int = 500
    #: A follower that lacks no entry gets the committed index this often.
    commit_interval_ms: int = 1000
    #: A member that does not know whether it may vote asks its peers this often.
    inquiry_interval_ms: int = 250
    #: The largest size of one push, in bytes of bodies. One entry alone may be larger.
    push_bytes_max: int = 256 * 1024
    #: A follower gets no further push while its pushes in flight have this many bytes of bodies.
    push_window_bytes: int = 4 * 1024 * 1024
    #: After a comparison the limit is this one at first, and rises with each acknowledgement by a
    #: quarter of the bytes of the push. To read and encode 4 MiB in one turn of the driver would
    #: take 25 ms.
    push_window_begin_bytes: int = 512 * 1024
    #: The largest number of pushes in flight to one follower.
    push_window_count: int = 64
    #: The largest number of entries that wait for a majority; more are refused.
    pending_entries_max: int = 10_000
    #: A follower keeps pushes that have overtaken others, up to this many bytes of bodies.
    parked_bytes_max: int = 16 * 1024 * 1024
    #: How long a follower keeps such a push before it reports the gap to the leader.
    parked_ms: int = 1000

    #: The lead is only transferred to a member that lacks fewer entries than this.
    transfer_lag_max: int = 1000
    #: How long a transferee waits for the entries that it lacks.
    transfer_wait_ms: int = 1000
    preferred_check_ms: int = 1000

    def __post_init__(self) -> None:
        """Check the members."""
        if self.member_id not in self.members:
            raise ValueError(f"the member {self.member_id} is not in its group {self.members}")
        if len(set(self.members)) != len(self.members):
            raise ValueError(f"the group {self.members} has one member twice")

    @cached_property
    def peers(self) -> tuple[str, ...]:
        """The ids of the other members."""
        return tuple(member for member in self.members if member != self.member_id)

    @cached_property
    def quorum(self) -> int:
        """How many members are a majority."""
        return len(self.members) // 2 + 1

    @cached_property
    def lead_timeout_ms(self) -> int:
        """How long a leader and its followers wait for each other before they give up."""
        return self.heartbeat_interval_ms * self.heartbeat_misses
