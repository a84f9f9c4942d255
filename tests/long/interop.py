"""The tests of tests/interop that take long: what `long_...` methods there do.

They show with an older client, or with Apache's broker in our place, what a test of the same class
shows in every run of the tests; they need Java and Maven as those do.

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


class LongLoader(TestLoader):
    """Finds the methods that no other runner takes for tests."""

    methodPrefix = "long"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="of tests/interop")
    names = parser.parse_args().modules or sorted(
        path.stem for path in Path(tests.interop.__path__[0]).glob("test_*.py"))
    loader = LongLoader()
    suite = TestSuite([loader.loadModule(import_module(f"tests.interop.{name}"))
                       for name in names])
    return 0 if TrialRunner(VerboseTextReporter).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
