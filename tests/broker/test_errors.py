"""The trees of errors, and their drawings at the heads of the modules."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import errors as server_errors
from twistmq.protocol import errors

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("protocol", "broker", "client", "tools", "plugins", "acl", "trace", "transaction",
           "spark_bridge", "integrations")
MODULES = {"protocol/errors.py": errors, "broker/errors.py": server_errors}


def drawn_tree(module: ModuleType) -> dict[str, str | None]:
    """Return the parent of each error in the drawing of a module."""
    parents: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for blanks, name in re.findall(r"^( {4,})([A-Z]\w+) {2,}\S", module.__doc__ or "", re.M):
        while above and above[-1][0] >= len(blanks):
            above.pop()
        parents[name] = above[-1][1] if above else None
        above.append((len(blanks), name))
    return parents


class ErrorTreeTests(SynchronousTestCase):
    """The modules protocol/errors.py and broker/errors.py."""

    def test_the_trees_are_drawn_as_the_classes_are(self) -> None:
        """Each class is in the drawing under its base, and in ``__all__``.

        The second tree begins with those of the first that it continues.
        """
        for path, module in MODULES.items():
            classes = {name: each for name, each in vars(module).items()
                       if isinstance(each, type) and issubclass(each, Exception)}
            own = {name: each for name, each in classes.items()
                   if each.__module__ == module.__name__}
            # What copies errors is a base of both trees and is not itself raised.
            roots = (Exception, errors.CopiedError)
            bases = {name: each.__base__.__name__ if each.__base__ not in roots else None
                     for name, each in own.items() if each is not errors.CopiedError}
            drawn = drawn_tree(module)
            self.assertEqual({name: drawn[name] for name in bases}, bases, msg=path)
            self.assertEqual(drawn.keys(), classes.keys() - {"CopiedError"}, msg=path)
            named = [name for name in module.__all__ if isinstance(getattr(module, name), type)]
            self.assertEqual(named, sorted(own), msg=path)

    def test_each_error_is_used(self) -> None:
        """An error that no module names is raised nowhere."""
        sources = "".join(
            path.read_text() for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))
            if path not in [ROOT / name for name in MODULES] and "api" not in path.parts)
        for path, module in MODULES.items():
            self.assertEqual([name for name in module.__all__
                              if not re.search(rf"\b{name}\b", sources)], [], msg=path)
