"""Tests of broker/wire/flags.py: each bit and id of the protocol is defined once."""

from __future__ import annotations

import ast
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.wire import flags

ROOT = Path(__file__).resolve().parents[3]


class OnceTests(SynchronousTestCase):
    """broker/wire/flags.py."""

    def test_no_other_module_defines_a_flag(self) -> None:
        """A module that needs a flag imports it, under its name."""
        wrong: list[str] = []
        for folder in ("broker", "plugins", "acl", "trace", "transaction", "spark_bridge"):
            for path in (ROOT / folder).rglob("*.py"):
                if path == ROOT / "broker/wire/flags.py":
                    continue
                for node in ast.parse(path.read_text()).body:
                    targets = node.targets if isinstance(node, ast.Assign) else [
                        node.target] if isinstance(node, ast.AnnAssign) else []
                    wrong += [f"{path.relative_to(ROOT)}: {target.id}" for target in targets
                              if isinstance(target, ast.Name)
                              and target.id.lstrip("_") in flags.__all__
                              and not isinstance(node.value, ast.Call)]
        self.assertEqual(wrong, [])

    def test_values_are_those_of_apache(self) -> None:
        """Clients and name servers of Apache read the same bits."""
        self.assertEqual((flags.PERM_INHERIT, flags.PERM_WRITE, flags.PERM_READ), (1, 2, 4))
        self.assertEqual((flags.PULL_COMMIT_OFFSET, flags.PULL_SUSPEND, flags.PULL_SUBSCRIPTION,
                          flags.PULL_CLASS_FILTER, flags.PULL_LITE), (1, 2, 4, 8, 16))
        self.assertEqual((flags.MASTER_ID, flags.UNIT, flags.UNIT_SUB), (0, 1, 2))
