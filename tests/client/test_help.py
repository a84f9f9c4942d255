"""The help of the client: each public name and attribute has a text."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.roles.styles import STYLES
from twistmq import client
from twistmq.client import aio, codecs, testing, tx


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Return the names that a module exports, except its own modules.

    Compiled classes are left out: mypyc drops the text of a class. The same test reads them where
    nothing is compiled.
    """
    for name in dir(module):
        value = getattr(module, name)
        if not (name.startswith("_") or inspect.ismodule(value) or is_compiled(value)):
            yield name, value


def is_compiled(value: object) -> bool:
    """Whether a class belongs to a module that is a C extension."""
    own = sys.modules.get(value.__module__) if inspect.isclass(value) else None
    return own is not None and not (getattr(own, "__file__", None) or ".py").endswith(".py")


def undocumented(kind: type) -> Iterator[str]:
    """Return the public attributes of a class that its help does not describe."""
    texts = [inspect.getdoc(each) or "" for each in kind.__mro__[:-1]]
    for each in kind.__mro__:
        if not each.__module__.startswith("twistmq."):
            continue
        for name in {*vars(each), *getattr(each, "__annotations__", {})}:
            value = inspect.getattr_static(kind, name, None)
            has_text = isinstance(value, property | staticmethod | classmethod) or callable(value)
            if name.startswith("_") or (has_text and inspect.getdoc(value)):
                continue
            if not any(re.search(rf"\b{name}\b", text) for text in texts):
                yield name


class HelpTests(SynchronousTestCase):
    """The output of ``help()`` for every public name."""

    def test_each_class_has_a_text_of_its_own(self) -> None:
        """Each exception has one as well, because the text of its base does not describe it."""
        for module in (client, aio, tx, testing, codecs):
            for name, value in public_names(module):
                if inspect.isclass(value):
                    self.assertTrue(vars(value).get("__doc__"), msg=f"{module.__name__}.{name}")

    def test_each_attribute_has_a_text_or_is_in_the_text_of_its_class(self) -> None:
        """Methods, properties, fields, members of an enum."""
        for module in (client, aio, tx, testing, codecs):
            for name, value in public_names(module):
                if inspect.isclass(value):
                    self.assertEqual(sorted(set(undocumented(value))), [],
                                     msg=f"{module.__name__}.{name}")

    def test_each_value_is_in_the_text_of_its_module_or_its_class(self) -> None:
        """A constant has no help of its own."""
        for module in (client, aio, tx, testing, codecs):
            for name, value in public_names(module):
                if callable(value):
                    self.assertTrue(inspect.getdoc(value), msg=f"{module.__name__}.{name}")
                else:
                    text = f"{module.__doc__} {type(value).__doc__}"
                    self.assertIn(f"``{name}``", text, msg=f"{module.__name__}.{name}")

    def test_what_it_notices(self) -> None:
        """A method without a text, and a field that the text of the class does not name."""
        class Bare:
            """Has a field ``named``."""

            named: int
            other: int

            def method(self) -> None:
                pass

        Bare.__module__ = "twistmq.client.bare"
        self.assertEqual(set(undocumented(Bare)), {"other", "method"})

    def test_each_class_says_how_to_name_the_servers_and_when_it_joins(self) -> None:
        """This is so once in each style."""
        for style in STYLES:
            for kind in ("Client", "Producer", "Consumer", "PullConsumer", "PopConsumer"):
                text = inspect.getdoc(getattr(style.module, kind)) or ""
                self.assertEqual(text.count(":param name_servers:"), 1, msg=f"{style.name} {kind}")
                self.assertEqual(text.count(":param client:"), kind != "Client")
                if kind.endswith("Consumer"):
                    when = "constructor joins" if style.module is client else "joins the group at"
                    self.assertIn(when, text, msg=f"{style.name} {kind}")
