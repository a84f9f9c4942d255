"""Exchange the brokers of a group for brokers of another kind, one after the other, under load.

    python -m tests.long.dledger_upgrade [PART]... [--rounds 1] [--program twistmq]

    rolling     three brokers of Apache's 5.5.0 become ours, each over the store of its
                predecessor, and then Apache's again: the followers first, the leader last. The
                old broker is stopped, and the next one follows when the new one has everything.
                There may be one election in a step
    older       three brokers of Apache's 5.3.3 become ours in the same way, and stay
    twice       a leader of Apache's 5.3.3 that is killed loses entries of its queues, and gives
                their offsets a second time when it leads again. One of ours follows it: its
                queues keep their messages and get the later ones, a line of its log names each
                queue with offsets that were given twice, and a metric counts them. Needs an
                installation with the extra metrics

In the first two, writers and readers work all the time, and the history is judged as in
``dledger_kills``. Ends with status 1 when there is a fault.
"""

from __future__ import annotations

import re
import sys
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.interop.ledger_group import IDS, OurMember
from tests.interop.ports import free_port
from tests.interop.servers import wait_until
from tests.long.dledger_group import (
    LoadedGroup,
    ProcessGroup,
    describe,
    make_parser,
    read_ledger,
    report,
    run_folder,
    silences,
)
from tests.long.dledger_load import TOPIC, Queues, now_ms, pull_queues, send_some
from tests.long.dledger_mixed import expected_queues, queue_faults, read_queues

__all__ = ["election_faults", "lost_entries", "main", "unnamed_queues"]

PARTS: Final = ("rolling", "older", "twice")
#: Its brokers lose entries of their queues when they are killed.
_OLDER: Final = "5.3.3"
_SETTINGS: Final = {"dledger.quick_failover": "true"}
#: The elections in a step: an old leader gives the lead away, or dies.
ELECTIONS_MAX: Final = 1
#: The messages before and after the kill of a broker of 5.3.3.
_COUNT: Final = 2000
_LATER_COUNT: Final = 600
_PATIENCE_SECONDS: Final = 90.0
#: A row of the metric, and the line of the log.
_METRIC: Final = re.compile(r'dledger_repeated_offsets_total\{.*queue="(\d+)".*\} (\d+)')
_LINE: Final = re.compile(r"queue (\d+) of T was given again by a leader")


def election_faults(step: str, elections: int) -> list[str]:
    """Return whether a step took too many elections."""
    return [f"{step}: {elections} elections"] if elections > ELECTIONS_MAX else []


def lost_entries(before: Queues, after: Queues) -> list[str]:
    """Return the messages that a queue has had and no longer shows at their offsets."""
    return [f"queue {place[0]} had {body!r} at {place[1]} and now has {after.get(place)!r}"
            for place, body in before.items() if after.get(place) != body]


def run_rolling(name: str, group: ProcessGroup, times: int) -> int:
    """Exchange all brokers a number of times; :returns: the exit status."""
    faults = []
    with LoadedGroup(group) as loaded:
        begin = now_ms()
        for _ in range(times):
            exchanged: set[str] = set()
            while len(exchanged) < len(IDS):
                leader = group.wait_for_leader()
                member = min(set(IDS) - exchanged, key=lambda each: (each == leader, each))
                faults += _exchange(loaded, group, member)
                exchanged.add(member)
        ended = now_ms()
        faults += loaded.finish()
    return report(
        name, f"{len(IDS) * times} exchanges in {(ended - begin) / 1000:.0f} s, the longest time "
        f"without an acknowledgement {silences(loaded.history, begin, ended)[0] / 1000:.1f} s; "
        f"{describe(loaded.history)}", faults)


def _exchange(loaded: LoadedGroup, group: ProcessGroup, member: str) -> list[str]:
    """Exchange one broker, and wait until it has everything; :returns: the faults."""
    role = "leader" if group.leader() == member else "follower"
    term = group.term()
    group.end(member)
    group.exchange(member)
    group.start(member)
    loaded.recover()
    kind = "ours" if member in group.ours_ids else "Apache's"
    elections = group.term() - term
    step = f"the {role} {member} is {kind} now"
    print(f"{step}: {elections} elections", flush=True)
    return election_faults(step, elections)


def unnamed_queues(twice: Iterable[int], lines: Iterable[str], metrics: str) -> list[str]:
    """Return which queues with offsets given twice the log or the metric does not name once.

    :param twice: these queues.
    :param lines: of the log.
    :param metrics: the page of all metrics.
    """
    named = [int(match[1]) for line in lines if (match := _LINE.search(line))]
    counted = {int(queue_id): int(count) for queue_id, count in _METRIC.findall(metrics)}
    due = sorted(set(twice))
    faults = []
    if sorted(named) != due:
        faults.append(f"the log names the queues {sorted(named)}, and not {due}")
    if sorted(queue_id for queue_id, count in counted.items() if count) != due:
        faults.append(f"the metric counts {counted}, and not messages of the queues {due}")
    return faults


def run_twice(folder: Path, program: list[str]) -> int:
    """Kill a leader of 5.3.3, and let it lead again; :returns: the exit status."""
    ours, theirs, port = "n2", "n0", free_port()
    settings = {"metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1",
                "metricsPromExporterPort": str(port)}
    with ProcessGroup(folder, program, settings, version=_OLDER, ours={ours}) as group:
        address = group.members[theirs].address
        group.start()
        group.give_lead(theirs)
        sent = send_some(address, 0, _COUNT)
        group.wait_until_equal()
        before = pull_queues(group.members[ours].address)
        # It enters the messages behind its check point again when it starts.
        checkpoint, begin = group.members[theirs].log_folder.parent / "checkpoint", time.time()
        wait_until("a check point has all entries", lambda: _is_settled(checkpoint, begin),
                   _PATIENCE_SECONDS)
        group.kill(theirs)
        group.start(theirs)
        group.wait_for_leader()
        group.give_lead(theirs)
        later = send_some(address, _COUNT, _LATER_COUNT)
        group.wait_until_equal()
        after = pull_queues(group.members[ours].address)
        follower = group.members[ours]
        assert isinstance(follower, OurMember)
        lines = [line for line in follower.log().splitlines() if _LINE.search(line)]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            metrics = page.read().decode()
        end = group.wait_for_equal_logs()
        group.end(ours)
        entries = read_ledger(follower.log_folder, end).log.entries
        queues = read_queues(group.store_folder(ours), TOPIC)
    twice = [queue_id for queue_id, offset in later if (queue_id, offset) in before]
    faults = lost_entries(sent, before) + lost_entries(before, after)
    faults += queue_faults(ours, queues, expected_queues(entries))
    if twice:
        faults += unnamed_queues(twice, lines, metrics)
    else:
        faults.append("no offset was given twice, so the run shows nothing: repeat it")
    for line in [*lines, *[line for line in metrics.splitlines() if _METRIC.search(line)]]:
        print(f"  {line}")
    return report(
        "twice", f"{len(before):,} messages before the kill, {len(later):,} after it, {len(twice)} "
        f"offsets of {len(set(twice))} queues given twice; our follower shows {len(after):,} "
        f"messages, {len(lines)} lines", faults)


def _is_settled(checkpoint: Path, begin: float) -> bool:
    """Return whether a check point of Apache's, written after a moment, has all entries."""
    try:
        lines = checkpoint.read_text().splitlines()
        is_new = checkpoint.stat().st_mtime > begin
    except OSError:
        # It is removed before it is written again.
        return False
    rows = dict(line.split("=", 1) for line in lines if "=" in line)
    return is_new and rows.get("committedIndex") == rows.get("endIndex")


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--rounds", type=int, default=1, help="there and back (1)")
    args = parser.parse_args()
    status = 0
    for name in args.parts or PARTS:
        with run_folder(args.keep, name) as folder:
            if name == "twice":
                status |= run_twice(folder, args.program)
            elif name == "older":
                status |= run_rolling(name, ProcessGroup(
                    folder, args.program, _SETTINGS, version=_OLDER, ours=()), 1)
            else:
                status |= run_rolling(name, ProcessGroup(
                    folder, args.program, _SETTINGS, ours=()), 2 * args.rounds)
    return status


if __name__ == "__main__":
    sys.exit(main())
