"""The tree of errors, and the page of it at the head of its module."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import errors

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("broker", "plugins", "acl", "trace", "transaction", "spark_bridge")


def drawn_tree() -> dict[str, str | None]:
    """By the name of each error in the module's text, the one that it is drawn under."""
    parents: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for blanks, name in re.findall(r"^( {4,})([A-Z]\w+) {2,}\S", errors.__doc__ or "", re.M):
        while above and above[-1][0] >= len(blanks):
            above.pop()
        parents[name] = above[-1][1] if above else None
        above.append((len(blanks), name))
    return parents


class ErrorTreeTests(SynchronousTestCase):
    """broker/errors.py."""

    def test_the_tree_is_drawn_as_the_classes_are(self) -> None:
        """Each class stands in the text under its base, and in ``__all__``."""
        classes = {name: each for name, each in vars(errors).items()
                   if isinstance(each, type) and issubclass(each, Exception)}
        # What copies errors is a base of both trees and is not itself raised.
        roots = (Exception, errors.CopiedError)
        bases = {name: each.__base__.__name__ if each.__base__ not in roots else None
                 for name, each in classes.items() if each is not errors.CopiedError}
        self.assertEqual(drawn_tree(), bases)
        self.assertEqual(errors.__all__, sorted(classes))

    def test_each_error_is_used(self) -> None:
        """An error that no module names is raised nowhere."""
        sources = "".join(
            path.read_text() for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))
            if path != ROOT / "broker/errors.py" and "api" not in path.parts)
        self.assertEqual(
            [name for name in errors.__all__ if not re.search(rf"\b{name}\b", sources)], [])
