"""Every hook is typed, documented, listed on the page, and implemented by some plugin."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.plugin import hookspecs
from twistmq.broker.plugin.hooks import Hooks
from twistmq.protocol.codes import RequestCode
from twistmq.tools.pages.hooks_page import hooks_by_section, hooks_page

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "plugins/HOOKS.md"

#: What the design of twistmq names; there may be more.
DESIGNED = {
    "register_settings", "register_request_handlers", "before_request", "after_response",
    "before_send", "after_send", "before_consume", "after_consume", "before_append",
    "on_dispatch", "on_message_arrival", "provide_transaction_service",
    "on_half_message_discarded", "provide_access_validators", "register_filter_languages",
    "on_client_change", "on_role_change", "add_runtime_info", "register_periodic_tasks",
    "register_commands", "on_start", "on_stop",
}


def declared() -> dict[str, ast.FunctionDef]:
    """Return the hooks as the source declares them."""
    tree = ast.parse(inspect.getsource(hookspecs))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


class SpecificationTests(SynchronousTestCase):
    """The module broker/plugin/hookspecs.py."""

    def test_designed_hooks(self) -> None:
        """All hooks of the design exist, and every function of the module is a hook."""
        self.assertEqual(DESIGNED - set(declared()), set())
        for name in declared():
            self.assertTrue(hasattr(getattr(hookspecs, name), "twistmq_spec"), msg=name)

    def test_every_argument_and_every_answer_has_a_type(self) -> None:
        """Every argument and every answer has a type."""
        for name, node in declared().items():
            self.assertIsNotNone(node.returns, msg=name)
            for argument in node.args.args:
                self.assertIsNotNone(argument.annotation, msg=f"{name}: {argument.arg}")

    def test_each_hook_says_its_purpose_time_and_cost(self) -> None:
        """Each docstring has the purpose, the time of the call, and the cost."""
        for name in declared():
            text = inspect.getdoc(getattr(hookspecs, name)) or ""
            self.assertRegex(text, r"^[A-Z].+\.$|^[A-Z].+\.\n", msg=name)
            self.assertRegex(text, r"Cost class:\s(once|rare|request|batch)", msg=name)

    def test_facade_knows_each(self) -> None:
        """The facade has a method for each hook."""
        source = inspect.getsource(Hooks)
        for name in declared():
            self.assertIn(f'"{name}"', source, msg=name)

    def test_each_is_implemented(self) -> None:
        """Each hook is used by some plugin; the sample package has them all."""
        sys.path.insert(0, str(ROOT / "tests/plugin_package/src"))
        self.addCleanup(sys.path.remove, str(ROOT / "tests/plugin_package/src"))
        from twistmq_sample_plugin import Sample, name_server

        for name in declared():
            self.assertTrue(any(hasattr(getattr(plugin, name, None), "twistmq_impl")
                                for plugin in (Sample, name_server.Sample)), msg=name)


class PageTests(SynchronousTestCase):
    """The page plugins/HOOKS.md."""

    def test_page_is_what_the_specifications_say(self) -> None:
        """The page is the one that is made from the specifications now."""
        self.assertEqual(PAGE.read_text(), hooks_page(),
                         msg="write it again: python -m twistmq.tools.pages.hooks_page")

    def test_exact_signatures(self) -> None:
        """Each hook has a heading, followed by the signature of the source."""
        page = PAGE.read_text()
        found = dict(re.findall(r"### (\w+)\n\n```python\n(.+)\n```\n", page))
        expected = {name: f"{name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}"
                    for name, node in declared().items() if node.returns is not None}
        self.assertEqual(found, expected)

    def test_sections_and_hooks_are_in_the_order_of_the_file(self) -> None:
        """Sections and hooks are in the order of the source, in which they are also called."""
        names = [name for _, names in hooks_by_section() for name in names]
        self.assertEqual(names, list(declared()))
        hooks = PAGE.read_text().partition("\n## Types\n")[0]
        self.assertEqual(re.findall(r"^### (\w+)", hooks, re.MULTILINE), names)

    def test_the_examples_of_the_page_work(self) -> None:
        """The whole plugin it shows works, and so does the test of it."""
        introduction = PAGE.read_text().partition("\n## Declarations\n")[0]
        blocks = re.findall(r"^```python\n(.+?)^```$", introduction, re.MULTILINE | re.DOTALL)
        plugin, test = blocks
        module = ModuleType("word_filter")
        self.patch(sys, "modules", {**sys.modules, "word_filter": module})
        exec(plugin, vars(module))
        exec(test, {})  # it runs a broker, and asserts

    def test_free_codes(self) -> None:
        """The codes that the page calls free are unused."""
        self.assertIn("From 30,000 to 99,999", PAGE.read_text())
        self.assertEqual([code for code in RequestCode if 30_000 <= code <= 99_999], [])
