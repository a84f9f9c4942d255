"""Each bit and each id of the protocol is defined once."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol import flags

ROOT = Path(__file__).resolve().parents[2]


#: Other names under which modules defined them.
ALIASES = frozenset(("MASTER", "READ_WRITE", "COMMIT_OFFSET", "SUSPEND", "SUBSCRIPTION",
                     "UNIT_FLAG", "UNIT_SUB_FLAG", "PERM"))


#: A line that may define one, among others: few modules have any, and are read closely.
LINE = re.compile(rf"^\(?[\w, ]*\b_*(?:{'|'.join(sorted(ALIASES.union(flags.__all__)))})\b",
                  re.MULTILINE)


def assigned(path: Path) -> list[str]:
    """The names that a module gives a number at its top, also several at a time."""
    names: list[str] = []
    text = path.read_text()
    if not LINE.search(text):
        return names
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        pairs = [(target, node.value) for target in targets]
        for target, value in pairs:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs += zip(target.elts, value.elts, strict=True)
            elif isinstance(target, ast.Name) and isinstance(value, ast.Constant | ast.BinOp) and (
                    not isinstance(getattr(value, "value", 0), str)):
                names.append(target.id)
    return names


class OnceTests(SynchronousTestCase):
    """The module protocol/flags.py."""

    def test_no_other_module_defines_a_flag(self) -> None:
        """A module that needs a flag imports it, under its name."""
        wrong: list[str] = []
        for folder in ("protocol", "broker", "client", "tools", "plugins", "acl", "trace",
                       "transaction", "spark_bridge", "integrations",
                       "tests"):
            for path in (ROOT / folder).rglob("*.py"):
                if path != ROOT / "protocol/flags.py":
                    wrong += [f"{path.relative_to(ROOT)}: {name}" for name in assigned(path)
                              if name.lstrip("_") in ALIASES.union(flags.__all__)]
        self.assertEqual(wrong, [])

    def test_values_are_those_of_apache(self) -> None:
        """Clients and name servers of Apache read the same bits."""
        self.assertEqual((flags.PERM_INHERIT, flags.PERM_WRITE, flags.PERM_READ), (1, 2, 4))
        self.assertEqual((flags.PULL_COMMIT_OFFSET, flags.PULL_SUSPEND, flags.PULL_SUBSCRIPTION,
                          flags.PULL_CLASS_FILTER, flags.PULL_LITE), (1, 2, 4, 8, 16))
        self.assertEqual((flags.MASTER_ID, flags.UNIT, flags.UNIT_SUB), (0, 1, 2))
