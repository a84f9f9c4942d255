"""Run queries of Spark while brokers, topics and drivers come and go, and compare what they wrote.

    python -m tests.long.spark_faults [--minutes 60] [--seed 1] [--faults restart,kill,...]
                                      [--python PATH] [--keep DIR] [--judge DIR] [--plain]

A name server, a broker, and a master with its slave run in processes of their own, and producers
send to them all the time. A driver of Spark runs three streams and batches: into Parquet with
``failOnDataLoss=false`` and with ``true``, and from topic to topic. At random moments brokers are
restarted, killed, replaced by their slave or cut off, topics get queues or are made again, the end
of a log is lost, messages expire, the name server restarts, and the driver is killed. In the end
each sink is compared with what the brokers acknowledged: nothing may be missing or there twice, and
what brokers lost for good must have been told, exactly that. ``--faults`` chooses kinds,
``--python`` an interpreter of an environment with another PySpark. ``--judge`` compares again what
a run has kept. With ``--plain`` no Spark runs: the driver asks the source what Spark asks it, which
costs little. Prints the faults, their counts and what differs; ends with status 1 when anything
does. Needs Java 17.
"""

from __future__ import annotations

import argparse
import contextlib
import pickle
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.spark_bridge.faults.faults import KINDS
from tests.spark_bridge.faults.harness import RECORD, Plan, judge, run


def kinds(text: str) -> tuple[str, ...]:
    """Read kinds of faults, with commas."""
    found = tuple(text.split(","))
    if not set(found) <= set(KINDS):
        raise argparse.ArgumentTypeError(f"{text} is not of {', '.join(KINDS)}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long there are faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=kinds, default=tuple(KINDS),
                        help=f"kinds, with commas: {', '.join(KINDS)}")
    parser.add_argument("--python", default=sys.executable, help="the interpreter Spark runs in")
    parser.add_argument("--keep", type=Path, help="keep stores, outputs and logs in this folder")
    parser.add_argument("--judge", type=Path, help="compare what is kept there, and do no more")
    parser.add_argument("--plain", action="store_true", help="no Spark, but what it asks for")
    args = parser.parse_args()
    if args.judge:
        with (args.judge / RECORD).open("rb") as file:
            verdict = judge(pickle.load(file))
        print(verdict)
        return 1 if verdict.problems else 0
    # So that servers and drivers end with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = args.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-faults-")))
        folder.mkdir(parents=True, exist_ok=True)
        verdict = run(Plan(folder.resolve(), args.python, args.minutes * 60, args.seed,
                           args.faults, has_spark=not args.plain))
    print(f"{sum(verdict.faults.values())} faults in {time.monotonic() - begin:.0f} s, seed "
          f"{args.seed}\n{verdict}")
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
