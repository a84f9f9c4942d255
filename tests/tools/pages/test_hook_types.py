"""The types on the page of hooks."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from importlib import import_module

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.settings import Setting
from twistmq.broker.plugin import hookspecs
from twistmq.broker.remoting.messages import RequestHandler
from twistmq.broker.request.client_table import Client, ClientChange
from twistmq.broker.request.consume_context import ConsumeContext
from twistmq.broker.request.send_context import SendBatch
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.protocol.record import MessageRecord
from twistmq.tools.pages.hook_types import SHOWN, shown_types


class ShownTypesTests(SynchronousTestCase):
    """The module tools/pages/hook_types.py."""

    def setUp(self) -> None:
        """Collect the types by name."""
        self.shown = {shown.name: shown for shown in shown_types()}

    def test_import_lines(self) -> None:
        """Each type can be imported from the named module, and has a description."""
        self.assertEqual(list(self.shown), [name for _, names in SHOWN for name in names])
        for shown in self.shown.values():
            self.assertTrue(hasattr(import_module(shown.module), shown.name), msg=shown.name)
            self.assertTrue(shown.help and shown.members, msg=shown.name)

    def test_every_field(self) -> None:
        """Each field of a type that plugins create or get has a line."""
        for kind in (Setting, RequestHandler, PeriodicTask, SendBatch, ConsumeContext, ClientChange,
                     Client):
            names = [field.name for field in fields(kind)]
            shown = [member.text for member in self.shown[kind.__name__].members]
            self.assertEqual([name for name in names if name not in shown], [],
                             msg=kind.__name__)
        # The compiled class has no __slots__.
        slots = {name for name in dir(MessageRecord) if not name.startswith("_")}
        self.assertEqual({member.text for member in self.shown["MessageRecord"].members}, slots)
        for name, expected in (("Request", {"command", "header", "channel", "now_ms", "body"}),
                               ("Reply", {"code", "header", "body", "remark"})):
            texts = {member.text for member in self.shown[name].members}
            self.assertEqual(expected - texts, set())

    def test_types_of_the_hooks(self) -> None:
        """Each of our classes in a hook's signature is shown, except a few simple ones."""
        imports = [node for node in ast.walk(ast.parse(inspect.getsource(hookspecs)))
                   if isinstance(node, ast.ImportFrom) and "twistmq" in (node.module or "")]
        used = {alias.name for node in imports for alias in node.names} - {"hookspec"}
        self.assertEqual(used - set(self.shown),
                         {"AnyHandler", "BrokerError", "Settings", "TagsCode"})

    def test_a_field_has_its_type_and_its_line(self) -> None:
        """A field has its type and its line, a method its arguments and its first sentence."""
        members = {member.text: member for member in self.shown["Broker"].members}
        self.assertEqual(members["role"].type, "str")
        self.assertEqual(members["role"].help, "ASYNC_MASTER, SYNC_MASTER or SLAVE.")
        self.assertEqual(members["channels"].type, "ChannelTable")
        append = members["append(records: Sequence[MessageRecord], "
                         "owners: Sequence[int] | None=None)"]
        self.assertEqual(append.type, "dict[int, BrokerError]")
        self.assertEqual(append.help, "Append records to the store; returns the refusals by index.")
        self.assertEqual([text for text in members if text.startswith("_")], [])
