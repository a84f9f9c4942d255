"""The page of results that tests/bench/all writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.bench.results_page import Part, page_of, section_of, sections_of, tables_of, warm_ups_of

PRINTED = """\
twistmq 0.1.0; 2 cores
send  twistmq  90,000 msg/s
not | a table

| | twistmq | Apache |
| --- | --- | --- |
| send, msg/s | 2 | 1 |
12 s
| broker | CPU |
| --- | --- |
| twistmq | 8 |
| only one line |
"""
PART = Part("wire", "Sends", ("run", "--seconds", "{seconds}", "--rounds", "{rounds}"), "No log.")


class ResultsPageTests(TestCase):
    """The sections of the page."""

    def test_tables_are_found_among_other_lines(self) -> None:
        self.assertEqual(tables_of(PRINTED), [
            "| | twistmq | Apache |\n| --- | --- | --- |\n| send, msg/s | 2 | 1 |",
            "| broker | CPU |\n| --- | --- |\n| twistmq | 8 |\n| only one line |"])

    def test_a_table_without_rows_is_none(self) -> None:
        self.assertEqual(tables_of("| a |\n| --- |\nfailed\n"), [])

    def test_options_are_put_into_the_command(self) -> None:
        self.assertEqual(PART.arguments(2.0, 5), ["run", "--seconds", "2", "--rounds", "5"])

    def test_a_new_run_replaces_its_own_section_alone(self) -> None:
        old = section_of(PART, "run", {"machine": "old"}, ["| a |\n| --- |\n| 1 |"])
        other = Part("pops", "Pops", ("pop_bench.py",), "")
        kept = section_of(other, "pop_bench.py", {"machine": "other"}, ["| b |\n| --- |\n| 2 |"])
        page = page_of({"Pops": kept, "Sends": old}, ["Sends", "Pops"])
        self.assertLess(page.index("## Sends"), page.index("## Pops"))
        new = section_of(PART, "run", {"machine": "new"}, ["| a |\n| --- |\n| 3 |"])
        page = page_of({**sections_of(page), "Sends": new}, ["Sends", "Pops"])
        self.assertNotIn("old", page)
        self.assertIn("- machine: new", page)
        self.assertIn("| 2 |", page)
        self.assertEqual(sections_of(page), {"Sends": new, "Pops": kept})

    def test_a_section_that_was_written_by_hand_stays(self) -> None:
        """It follows the sections of the listed benchmarks."""
        by_hand, sends = "## By hand\n\nSome text.\n", "## Sends\n\n| a |\n"
        page = page_of({"By hand": by_hand, "Sends": sends}, ["Sends"])
        self.assertEqual(list(sections_of(page)), ["Sends", "By hand"])

    def test_a_section_says_how_long_the_warm_up_took(self) -> None:
        """A side that did not get warm is named."""
        self.assertEqual(warm_ups_of(
            "warm-up pull, round 1: ours us 5.00\nwarm-up pull: warm after 5 rounds\n"
            "warm-up send json: NOT WARM after 20 rounds: Apache\n"),
            "pull 5 rounds; send json 20 rounds, NOT WARM: Apache")

    def test_every_benchmark_of_the_list_is_a_program(self) -> None:
        folder = Path(__file__).parent / "bench"
        listed = subprocess.run([sys.executable, folder / "all", "--list", "--twistmq", "twistmq"],
                                capture_output=True, text=True, check=True).stdout
        self.assertGreater(len(listed.splitlines()), 8)
        text = (folder / "all").read_text()
        for name in ("run", "features", "brokers_bench.py", "pop_bench.py", "timer_bench.py",
                     "client_bench.py", "kafka_bench.py", "ha_bench.py", "growth_bench.py"):
            self.assertIn(f'("{name}"', text)
            self.assertTrue((folder / name).exists(), name)

    def test_a_relative_path_of_a_program_is_resolved_where_it_was_given(self) -> None:
        """Benchmarks run in their own folder, where the path would mean another file."""
        folder = Path(__file__).parent / "bench"
        shown = subprocess.run(
            [sys.executable, "-c", "import bench_servers; print("
             "bench_servers.parser_of('').parse_args(['--twistmq', 'x/twistmq']).twistmq)"],
            cwd=folder, capture_output=True, text=True, check=True).stdout
        self.assertEqual(shown.strip(), str(folder / "x" / "twistmq"))
