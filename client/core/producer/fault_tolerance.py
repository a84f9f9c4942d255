"""Avoids slow and dead brokers: decides how long each is left out, and which brokers to probe.

After each send, its duration and outcome are recorded. If it was slow, its broker is left out for a
time that a table of latencies determines; a failed send counts as a very slow one. A broker that
could not be reached is left out until a probe or a later send reaches it.

    latency, ms  from   50  100   550  1800  3000   5000  15000    a failure counts as
    5.x          away    0    0  2 s   5 s   6 s   10 s    30 s    10 s
    latency, ms  from   50  100   550  1000  2000   3000  15000
    to 5.1.3     away    0    0  30 s  60 s  120 s  180 s  600 s   30 s

A producer without the option ``avoid_slow`` records only failures (:data:`TABLE_FAILURES`): a
broker that was not reached, or did not answer in time, is left out for ten seconds and until a
probe reaches it. Nothing is recorded about a broker that answers, so such a producer has no cost
for each message.

Source: MQFaultStrategy, LatencyFaultToleranceImpl @5.3.3 and @4.9.4. Differs from Apache: reachable
brokers are not probed, because a probe would change nothing for them; and an unreachable broker is
left out until it is reachable, not only for as long as its failure counts. Without its option,
Apache's client avoids a broker only within the send that failed there.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

__all__ = ["TABLE_4", "TABLE_5", "TABLE_FAILURES", "Faults", "LatencyTable"]

#: The delay before the first probes after a start and the interval between rounds, in ms.
ROUND_MS: Final = 3000
#: The shortest interval between probes of one broker, in ms.
PROBE_MS: Final = 2000
#: The time-out of a probe, in ms; it is longer if only failures count, because a broker may be far
#: away.
PROBE_TIMEOUT_MS: Final = 200
PROBE_FAR_TIMEOUT_MS: Final = 1000
#: If only failures count, the interval between probes of a broker doubles up to this, in ms.
PROBE_WAIT_MAX_MS: Final = 24_000


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """How long a broker is left out after a send of some latency; all times are in ms."""

    latencies: tuple[int, ...]
    away: tuple[int, ...]
    #: The latency that counts for a failure.
    failure: int
    #: Whether a quick send does not shorten the time for which a broker is left out.
    only_extends: bool
    #: The time-out of a probe.
    probe_timeout_ms: int = PROBE_TIMEOUT_MS

    @property
    def has_latencies(self) -> bool:
        """Whether a broker is left out even if it is only slow."""
        return bool(self.latencies)

    def away_ms(self, latency_ms: float) -> int:
        """Return how long a broker is left out."""
        if not self.latencies:
            return self.away[0]
        at = bisect_right(self.latencies, latency_ms)
        return self.away[at - 1] if at else 0


TABLE_5: Final = LatencyTable(
    (50, 100, 550, 1800, 3000, 5000, 15_000), (0, 0, 2000, 5000, 6000, 10_000, 30_000),
    failure=10_000, only_extends=True)
TABLE_4: Final = LatencyTable(
    (50, 100, 550, 1000, 2000, 3000, 15_000),
    (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000), failure=30_000, only_extends=False)


#: Only failures count; each leaves a broker out for 10 s.
TABLE_FAILURES: Final = LatencyTable(
    (), (10_000,), failure=0, only_extends=True, probe_timeout_ms=PROBE_FAR_TIMEOUT_MS)


@dataclass(slots=True)
class _Broker:
    """The known state of a broker; times are by the monotonic clock, in ms."""

    away_until_ms: float = 0
    is_reachable: bool = True
    probe_from_ms: float = 0
    probe_wait_ms: float = PROBE_MS


class Faults:
    """The brokers to which a producer has sent.

    :param table: :data:`TABLE_5`, :data:`TABLE_4` or :data:`TABLE_FAILURES`.
    :param now_ms: the time by the monotonic clock.

    If ``is_active`` is true, a send has to consult this object before it chooses a broker, and to
    report how it ended.
    """

    def __init__(self, table: LatencyTable = TABLE_5, now_ms: float = 0) -> None:
        self._table = table
        self._brokers: dict[str, _Broker] = {}
        self._unreachable: dict[str, _Broker] = {}
        self._round_ms = now_ms + ROUND_MS
        self.is_active = table.has_latencies

    @property
    def probe_timeout_ms(self) -> int:
        """The time-out of a probe."""
        return self._table.probe_timeout_ms

    def ended(
        self, broker: str, latency_ms: float, now_ms: float, *, failed: bool = False,
        reachable: bool = True,
    ) -> None:
        """Record that a send to a broker has ended.

        :param failed: whether to leave the broker out whatever the latency.
        :param reachable: False if there was no connection or no response in time.
        """
        if not self._table.has_latencies and not (failed and not reachable):
            # The broker answered, so it is not left out.
            self.forget(broker)
            return
        away_ms = self._table.away_ms(self._table.failure if failed else latency_ms)
        state = self._brokers.get(broker)
        if state is None:
            if not away_ms and reachable:
                return
            state = self._brokers[broker] = _Broker()
            self.is_active = True
        if not self._table.only_extends:
            state.away_until_ms = now_ms + away_ms
        elif away_ms:
            state.away_until_ms = max(state.away_until_ms, now_ms + away_ms)
        self._note_reachable(broker, state, reachable)

    def _note_reachable(self, broker: str, state: _Broker, reachable: bool) -> None:
        state.is_reachable = reachable
        if reachable:
            self._unreachable.pop(broker, None)
        else:
            self._unreachable[broker] = state

    def is_available(self, broker: str, now_ms: float) -> bool:
        """Whether sends may go to a broker: it is neither slow nor dead."""
        state = self._brokers.get(broker)
        return state is None or (state.is_reachable and now_ms >= state.away_until_ms)

    def is_reachable(self, broker: str) -> bool:
        """Whether the last request to a broker reached it."""
        state = self._brokers.get(broker)
        return state is None or state.is_reachable

    def forget(self, broker: str) -> None:
        """Forget a broker, for example because it no longer appears in a route."""
        self._brokers.pop(broker, None)
        self._unreachable.pop(broker, None)
        self.is_active = bool(self._brokers) or self._table.has_latencies

    # --- probes

    def due_ms(self) -> float | None:
        """Return when :meth:`probes` has to be called; None while every broker is reachable."""
        return self._round_ms if self._unreachable else None

    def probes(self, now_ms: float) -> list[str]:
        """Return the brokers to probe now, each with the time-out ``probe_timeout_ms``.

        As a probe, Apache's client asks for the end of a queue. The caller calls :meth:`probed`
        when the broker answers, and :meth:`forget` for a broker without an address.
        """
        if now_ms < self._round_ms:
            return []
        # After a stop of the clock (a laptop asleep), rounds must not follow one another at once.
        self._round_ms = max(self._round_ms + ROUND_MS, now_ms)
        broker_names = []
        for name, state in self._unreachable.items():
            if now_ms >= state.probe_from_ms:
                state.probe_from_ms = now_ms + state.probe_wait_ms
                if not self._table.has_latencies:
                    state.probe_wait_ms = min(state.probe_wait_ms * 2, PROBE_WAIT_MAX_MS)
                broker_names.append(name)
        return broker_names

    def probed(self, broker: str) -> None:
        """Record that a broker answered a probe."""
        state = self._brokers.get(broker)
        if state is not None:
            self._note_reachable(broker, state, True)
