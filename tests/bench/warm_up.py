"""The rounds of a benchmark that do not count: they continue until both sides are warm.

A Java program compiles what it runs while it runs: pulls of Apache's broker took 25.9 us of CPU a
message in its first seconds and 5.9 us after 40 s. A comparison with a side that is still getting
faster says nothing, so every benchmark that compares with a peer calls :func:`warm_up` for each
kind of load, on all sides in turn, before its rounds count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["ROUND_SECONDS", "are_close", "warm_up"]

#: Two rounds in a row of a warm side differ by less than this part.
TOLERANCE = 0.1
#: A round of the warm-up takes so long at least. In shorter ones a side that gets a quarter faster
#: every eight seconds would look like one that stays the same.
ROUND_SECONDS = 8.0
#: After so many rounds the benchmark goes on, and says that a side is not warm.
ROUNDS_MAX = 20
Figures = Mapping[str, float]


def are_close(before: Figures, after: Figures) -> bool:
    """Whether no figure of two rounds differs by a tenth or more of the larger one."""
    return all(abs(before[name] - after[name]) < TOLERANCE * max(before[name], after[name])
               or before[name] == after[name] for name in after)


def warm_up(
    what: str, sides: Mapping[str, Callable[[], Figures]], rounds_max: int = ROUNDS_MAX,
) -> bool:
    """Load the sides in turn until each of them had two rounds in a row that are close.

    All are loaded until the last is warm. Prints the figures of each round.

    :param what: the load.
    :param sides: by name, runs a round and returns its figures: those that fall while a side gets
        warm, such as CPU a message.
    :returns: whether all sides are warm.
    """
    before: dict[str, Figures] = {}
    names = list(sides)
    cold = names
    for number in range(1, rounds_max + 1):
        # The order alternates: one side's dirty pages are written while the next is measured.
        figures = {name: sides[name]() for name in (names if number % 2 else names[::-1])}
        # A side stays warm: on a busy machine rounds of all sides are hardly ever close at once.
        cold = [name for name in cold
                if name not in before or not are_close(before[name], figures[name])]
        print(f"warm-up {what}, round {number}: " + "; ".join(
            f"{name} " + ", ".join(f"{key} {value:,.2f}" for key, value in figures[name].items())
            for name in names), flush=True)
        if not cold:
            print(f"warm-up {what}: warm after {number} rounds", flush=True)
            return True
        before = figures
    print(f"warm-up {what}: NOT WARM after {rounds_max} rounds: {', '.join(cold)}", flush=True)
    return False
