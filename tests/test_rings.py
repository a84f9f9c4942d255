"""Every test belongs to a ring, and the pages and scripts name exactly the rings that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.rings import (
    DRAWN,
    ELSEWHERE,
    LINT,
    OUTER,
    RINGS,
    SLOW,
    SLOWEST_FIRST,
    TOGETHER,
    draw_half,
    fast_modules,
    is_wanted,
    ring_of,
)

TESTS = Path(__file__).parent
ROOT = TESTS.parent


@cache
def names_of_tests(file: Path) -> list[str]:
    """Return the names of the tests in a file."""
    return re.findall(r"^ +(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)


class RingTests(SynchronousTestCase):
    """The module ``tests/rings.py``."""

    def test_each_ring_has_tests_and_each_test_a_ring(self) -> None:
        """Each ring has tests, and each test has a ring."""
        found = {ring_of(file.relative_to(TESTS).as_posix(), name)
                 for file in TESTS.rglob("test_*.py") for name in names_of_tests(file)}
        self.assertEqual(found, set(RINGS))

    def test_every_file_of_the_tables_exists(self) -> None:
        """Every file of the tables exists, and so does every short round."""
        shared = [file for files in TOGETHER.values() for file in files]
        elsewhere = [row for files in ELSEWHERE.values() for row in files.items()]
        named = {*DRAWN, *SLOW, *SLOWEST_FIRST, *shared, *(file for file, _ in elsewhere)}
        self.assertEqual([file for file in sorted(named) if not (TESTS / file).is_file()], [])
        self.assertEqual([name for file, names in elsewhere
                          for name in names if name not in names_of_tests(TESTS / file)], [])

    def test_files_that_are_not_collected_have_no_selected_test(self) -> None:
        """For each command of the pages, and for marks of other plugins."""
        outer = f"not ({' or '.join((LINT, *OUTER))})"
        for expression, wants in (
            ("", lambda ring, fast: True), ("fast", lambda ring, fast: fast),
            (outer, lambda ring, fast: ring not in (LINT, *OUTER)),
            ("not fast and unit", lambda ring, fast: ring == "unit" and not fast),
            ("not (not clients)", lambda ring, fast: ring == "clients"),
            *((ring, lambda own, fast, ring=ring: own == ring) for ring in RINGS),
        ):
            for file in TESTS.rglob("test_*.py"):
                path = file.relative_to(TESTS).as_posix()
                rings = {ring_of(path, name) for name in names_of_tests(file)}
                wanted = any(wants(ring, ring == "unit" and path not in SLOW) for ring in rings)
                if wanted or (rings and not any(path in each for each in ELSEWHERE.values())):
                    self.assertEqual(is_wanted(path, expression), wanted, msg=f"{path}{expression}")
        for expression in ("hypothesis", "spark(x=1)", "unit and", "not (spark or hypothesis)"):
            self.assertTrue(is_wanted("protocol/test_flags.py", expression), msg=expression)

    def test_one_worker_runs_all_tests_of_the_spark_session(self) -> None:
        """Each file that starts the session belongs to those that share it."""
        files = {file.relative_to(TESTS).as_posix() for file in TESTS.rglob("test_*.py")
                 if "spark_session" in file.read_text() and any(
                     isinstance(node, ast.ImportFrom)
                     and node.module == "tests.spark_bridge.session"
                     and "spark_session" in [name.name for name in node.names]
                     for node in ast.walk(ast.parse(file.read_text())))}
        self.assertEqual(files, set(TOGETHER["spark session"]))

    def test_a_run_leaves_out_half_of_the_longest_files(self) -> None:
        """A new draw is made for each run, and only files of outer rings can be left out."""
        self.assertEqual({ring_of(file, "test_x") for file in DRAWN} - set(OUTER), set())
        self.assertEqual([file for files in ELSEWHERE.values() for file in files
                          if file in DRAWN], [])
        draws = [draw_half() for _ in range(60)]
        self.assertEqual({len(draw) for draw in draws}, {len(DRAWN) // 2})
        self.assertEqual({file for draw in draws for file in draw}, set(DRAWN))

    def test_slow_files_are_of_the_unit_ring(self) -> None:
        """The list of slow files has only files of the ring unit."""
        self.assertEqual({ring_of(file, "test_x") for file in SLOW}, {"unit"})

    def test_the_readme_command_leaves_out_the_outer_rings(self) -> None:
        """The command leaves out nothing else."""
        [command] = [line for line in (ROOT / "README.md").read_text().splitlines()
                     if "bin/pytest" in line]
        self.assertIn(f'-m "not ({" or ".join((LINT, *OUTER))})"', command)
        script = (ROOT / ".ci/run").read_text()
        self.assertIn(f"-m {LINT} ", script)
        self.assertIn(f"-m '{' or '.join(OUTER[:-1])}'", script)
        self.assertIn(f"-m {OUTER[-1]} ", script)

    def test_modules_of_the_fast_ring_are_named_for_trial(self) -> None:
        """The modules that .ci/run runs by trial are exactly those with a test of the fast ring."""
        fast = {file.relative_to(TESTS).as_posix() for file in TESTS.rglob("test_*.py")
                if any(ring_of(file.relative_to(TESTS).as_posix(), name) == "unit"
                       for name in names_of_tests(file))} - SLOW
        self.assertEqual({name.replace(".", "/").removeprefix("tests/") + ".py"
                          for name in fast_modules()}, fast)

    def test_the_page_lists_every_ring(self) -> None:
        """The page lists every ring with the words of the table."""
        page = (TESTS / "README.md").read_text()
        self.assertEqual([ring for ring, text in RINGS.items()
                          if f"| `{ring}` | {text} |" not in page], [])
