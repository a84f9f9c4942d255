# ^The cost of many users of ACL 2.0: a start, a decision, and memory.
"""What many users of access control 2.0 cost: a start, a decision, memory.

  users_bench.py [--users 10000] [--policies 5] [--rounds 5]

In one process, without a broker. Each user has his own topic, prefix and group, all topics and all
clusters; in the second pair of columns three of the five entries are for one network of his own. A
first decision is the first one about a user since the start or since his last change, and makes the
form in which he is checked. A later one has this form, but has not seen its resource before. Times
are of the processor; those of decisions are the best of all rounds, in chunks of 500 users, because
another program on the machine makes each chunk only slower.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator

from twistmq.acl.access_table import Action, Kind, RequestedAccess
from twistmq.acl.auth_table import AuthTable, PolicyTable, UserTable
from twistmq.acl.policies import entries_of
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.store.disk import RealDisk
from twistmq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

CHUNK = 500
PUB = (Action.PUB,)


def address_of(number: int) -> str:
    return f"10.{number >> 8 & 255}.{number & 255}.7"


def entries(number: int, count: int, sources: list[str] | None) -> list[PolicyEntryInfo]:
    """The entries of a user; more than five are about more topics."""
    found = [PolicyEntryInfo(f"Topic:orders-{number}", ["Pub", "Sub"], sources, "Allow"),
             PolicyEntryInfo(f"Topic:pay-{number}*", ["Pub"], sources, "Allow"),
             PolicyEntryInfo(f"Group:billing-{number}", ["Sub"], sources, "Allow"),
             PolicyEntryInfo("Topic:*", ["Get"], None, "Allow"),
             PolicyEntryInfo("Cluster:*", ["All"], None, "Deny")]
    found += [PolicyEntryInfo(f"Topic:more-{number}-{extra}", ["Sub"], None, "Allow")
              for extra in range(count - 5)]
    return found[:count]


def table_in(folder: str) -> AuthTable:
    return AuthTable(*[kind(ConfigFile(RealDisk(), os.path.join(folder, name), is_private=True))
                       for kind, name in ((UserTable, "users.json"), (PolicyTable, "acls.json"))])


def fill(folder: str, users: int, count: int, has_networks: bool) -> None:
    """Write the files of a broker."""
    table = table_in(folder)
    for number in range(users):
        name = f"user-{number}"
        table.create_user(name, UserInfo(password=f"secret-of-{name}"))
        sources = [address_of(number).rpartition(".")[0] + ".0/24"] if has_networks else None
        table.merge_policies(name, entries_of(AclInfo(None, [PolicyInfo(
            "Custom", entries(number, count, sources))])))
    for each in (table.user_table, table.policy_table):
        run = each.saving()
        try:
            while True:
                next(run)
        except StopIteration as end:
            end.value()


def best_us(
    rounds: int, users: int, before: Callable[[], None], call: Callable[[int], None]
) -> float:
    """Return the shortest processor time of a call, us.

    :param before: is called before each round.
    """
    found = []
    for _ in range(rounds):
        before()
        for first in range(0, users - CHUNK + 1, CHUNK):
            begin = time.process_time_ns()
            for number in range(first, first + CHUNK):
                call(number)
            found.append((time.process_time_ns() - begin) / CHUNK / 1000)
    return min(found)


def figures(
    users: int, count: int, rounds: int, has_networks: bool
) -> Iterator[tuple[str, str, float]]:
    """Yield the name, the limit and the value of each measurement."""
    with tempfile.TemporaryDirectory(prefix="twistmq-bench-") as folder:
        fill(folder, users, count, has_networks)
        begin = time.process_time()
        table_in(folder).load()
        yield "a start, ms", "1000", (time.process_time() - begin) * 1000
        tracemalloc.start()
        table = table_in(folder)
        table.load()
        gc.collect()
        memory, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        yield "memory, MB", "30", memory / 1e6

    def decide(wanted: list[RequestedAccess]) -> Callable[[int], None]:
        def call(number: int) -> None:
            subject = table.subject_of(f"user-{number}")
            if subject is None or subject.denial_of(wanted[number], address_of(number)):
                raise SystemExit("a decision is wrong")
        return call

    topics = [RequestedAccess(Kind.TOPIC, f"orders-{number}", PUB) for number in range(users)]
    prefixed = [RequestedAccess(Kind.TOPIC, f"pay-{number}-x", PUB) for number in range(users)]
    for text, wanted in (("by name", topics), ("by prefix", prefixed)):
        call = decide(wanted)
        yield (f"first decision, {text}, us", "20",
               best_us(rounds, users, table.subjects.clear, call))
        yield f"later decision, {text}, us", "20", best_us(rounds, users, lambda: None, call)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--policies", type=int, default=5, help="entries of each user")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.users < CHUNK:
        parser.error(f"--users must be at least {CHUNK}")
    columns = [list(figures(arguments.users, arguments.policies, arguments.rounds, has_networks))
               for has_networks in (False, True)]
    print(f"| {arguments.users:,} users with {arguments.policies} entries | every address | "
          "own networks | bound |\n| --- | --- | --- | --- |")
    for (text, bound, plain), (_, _, limited) in zip(*columns, strict=True):
        print(f"| {text} | {plain:.1f} | {limited:.1f} | {bound} |")


if __name__ == "__main__":
    main()
