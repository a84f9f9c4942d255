"""The settings of a member. The defaults are DLedger's; all durations are in milliseconds."""

from dataclasses import dataclass

__all__ = ["MemberSettings"]


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """The identity of a member, its group, and its limits of time and size.

    :raises ValueError: when the member is not in its group, or a peer appears twice.
    """

    group: str
    member_id: str
    #: The ids of all members, this one included. The order is of no importance.
    members: tuple[str, ...]
    #: Members that should lead when they are able to.
    preferred_leaders: tuple[str, ...] = ()
    #: True: an entry counts at a member when it is synced. False: when it is written.
    durable: bool = True
    #: True: the loss of the leader's process (``PeerRefused``) starts an election at once.
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

    #: A push of entries is repeated after this time, from a comparison on.
    push_timeout_ms: int = 1000
    #: After a failed push, this time passes before the next comparison.
    push_pause_ms: int = 500
    #: A follower that lacks nothing is told the committed index this often.
    commit_interval_ms: int = 1000
    #: A member that does not know whether it may vote asks its peers this often.
    inquiry_interval_ms: int = 1000
    #: Entries of one push, in bytes of bodies.
    push_bytes_max: int = 256 * 1024
    #: Bytes of pushes that one follower has not answered.
    push_window_bytes: int = 4 * 1024 * 1024
    #: Pushes that one follower has not answered.
    push_window_count: int = 64
    #: Entries that wait for a majority; more are refused.
    pending_entries_max: int = 10_000
    #: A follower keeps pushes that have overtaken others, up to this many bytes of bodies.
    parked_bytes_max: int = 16 * 1024 * 1024
    #: How long a follower keeps such a push before it tells the leader of the gap.
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

    @property
    def peers(self) -> tuple[str, ...]:
        """The ids of the other members."""
        return tuple(member for member in self.members if member != self.member_id)

    @property
    def quorum(self) -> int:
        """How many members are a majority."""
        return len(self.members) // 2 + 1

    @property
    def lead_timeout_ms(self) -> int:
        """How long a leader and its followers tolerate that they do not hear each other."""
        return self.heartbeat_interval_ms * self.heartbeat_misses
