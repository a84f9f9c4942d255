"""Pass a store with many messages between our broker and Apache's several times, and compare.

    python -m tests.long.exchange [--messages 20000] [--versions 5.3.3,4.9.4] [--every 5] [--keep]

Each exchange has four turns over one store, begun by Apache's broker or by ours: who opens the
store compares all it finds with what the other had, sends half of the messages asked for (in the
last two turns a tenth of that), and is stopped or gets SIGKILL. Compared are every message by pull,
one of ``--every`` by key and by id too, offsets of groups, topics and groups; `twistmq store check`
finds each store whole, beside its broker and when that has ended, and `twistmq store dump` lists
every record. Kinds are single and
batch, with tags, keys, Unicode and large bodies; Apache's brokers also take delayed ones,
5.3.3 half messages and such as have a topic name longer than 127 bytes. Files are small, so that
commit log, queues and index roll many times. Prints a line a turn; ends with status 1 when anything
differs. Needs java and mvn.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.interop.clients import java_missing
from tests.interop.contents import HALF_TOPIC, LONG_TOPIC, SCHEDULE_TOPIC, TOPICS, Contents
from tests.interop.exchange import Exchange
from tests.interop.servers import free_port

#: What Apache's broker of a version takes beside plain messages.
KINDS: Final = {"5.3.3": "all", "4.9.4": "delayed"}
TOPICS_OF_KINDS: Final = {"all": {SCHEDULE_TOPIC, HALF_TOPIC, LONG_TOPIC},
                          "delayed": {SCHEDULE_TOPIC}}
ORDERS: Final = (("apache", "ours") * 2, ("ours", "apache") * 2)


def pass_on(
    folder: Path, version: str, order: tuple[str, ...], kill: bool, count: int, every: int
) -> int:
    """Make one exchange; :returns: the number of messages in the store at its end.

    :raises AssertionError: when a broker does not say what the one before did.
    """
    exchange = Exchange(folder, free_port(), version, every=every, check=True)
    contents: Contents | None = None
    for number, whose in enumerate(order):
        begin = time.monotonic()
        kinds = KINDS.get(version, "all") if whose == "apache" else "plain"
        contents = exchange.turn(whose, kill, contents, count // (2 if number < 2 else 20), kinds)
        print(f"  {whose:<6} has {len(contents.records):,} records, {len(contents.by_id):,} found "
              f"by id, {len(contents.by_key):,} keys, {len(contents.offsets)} offsets; "
              f"{'killed' if kill else 'stopped'} after {time.monotonic() - begin:.0f} s",
              flush=True)
    assert contents is not None
    # The last turn's messages are read by the next broker too.
    exchange.turn(order[0], kill, contents, 0)
    found = {topic for topic, _, _ in contents.records}
    assert found == {*TOPICS, *TOPICS_OF_KINDS[KINDS.get(version, "all")]}, found
    files = exchange.rolled()
    assert all(number > 1 for number in files.values()), files
    print("  files:", ", ".join(f"{number} of the {what}" for what, number in files.items()))
    return len(contents.records)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--versions", type=lambda text: text.split(","), default=["5.3.3", "4.9.4"])
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="keep the stores in this folder")
    args = parser.parse_args()
    done, failed, messages = 0, 0, 0
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        home = args.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-")))
        for version in args.versions:
            if reason := java_missing(version):
                parser.error(reason)
            for order in ORDERS:
                for kill in (False, True):
                    name = f"{version}-{order[0]}-first-{'killed' if kill else 'stopped'}"
                    print(name, flush=True)
                    try:
                        messages += pass_on(home / name, version, order, kill, args.messages,
                                            args.every)
                        done += 1
                    except AssertionError as error:
                        failed += 1
                        print(f"  FAILED: {error}", flush=True)
    print(f"{done + failed} exchanges in {time.monotonic() - begin:.0f} s: {messages:,} messages, "
          f"{failed} failed")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    raise SystemExit(main())
