"""The long tests of tests/interop and tests/spark_bridge, whose names begin with `long_`.

They show with an older client, with Apache's broker in our place, after a kill or on a cluster what
tests beside them show in every run; they need Java and Maven as those do.

    python -m tests.long.interop [MODULE ...]      e.g. test_transactions; all without

The exit status is 1 when one failed.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from twisted.trial.reporter import VerboseTextReporter
from twisted.trial.runner import TestLoader, TestSuite, TrialRunner

import tests.interop
import tests.spark_bridge

#: Where the modules are.
PACKAGES = (tests.interop, tests.spark_bridge)


class LongLoader(TestLoader):
    """Finds the methods that other runners do not take for tests."""

    methodPrefix = "long"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="a file's name without .py")
    wanted = parser.parse_args().modules
    modules = [(path.stem, f"{package.__name__}.{path.stem}") for package in PACKAGES
               for path in sorted(Path(package.__path__[0]).glob("test_*.py"))]
    unknown = set(wanted) - {stem for stem, _ in modules}
    if unknown:
        parser.error(f"no {', '.join(sorted(unknown))} in tests/interop or tests/spark_bridge")
    loader = LongLoader()
    suite = TestSuite([loader.loadModule(import_module(name)) for stem, name in modules
                       if not wanted or stem in wanted])
    return 0 if TrialRunner(VerboseTextReporter).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
