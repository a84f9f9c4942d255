"""The module tests/draw.py: a short run leaves cases out, and a whole run does not."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.draw import SHARE, drawn, examples


class DrawTests(SynchronousTestCase):
    """Draws of cases."""

    def test_a_whole_run_has_every_case(self) -> None:
        """Every case is tested, in order."""
        self.assertEqual(drawn(range(10), whole=True), list(range(10)))
        self.assertEqual(examples(300, whole=True), 300)

    def test_a_short_run_has_a_quarter_in_order(self) -> None:
        """The quarter is rounded up, so a table with one case is never left out."""
        some = drawn(range(10), whole=False)
        self.assertEqual((len(some), some), (3, sorted(set(some))))
        self.assertEqual(drawn(["only"], whole=False), ["only"])
        self.assertEqual(drawn([], whole=False), [])
        self.assertEqual((examples(300, whole=False), examples(1, whole=False)), (75, 1))

    def test_many_short_runs_have_every_case(self) -> None:
        """No case is left out for ever."""
        seen: set[int] = set()
        for _ in range(100 * SHARE):
            seen.update(drawn(range(8), whole=False))
        self.assertEqual(seen, set(range(8)))

    def test_one_step_of_ci_is_whole(self) -> None:
        """A step of .ci/run sets the variable; without it no run would try every case."""
        script = Path(__file__).resolve().parents[1] / ".ci/run"
        self.assertIn("TWISTMQ_TESTS=whole ", script.read_text())
