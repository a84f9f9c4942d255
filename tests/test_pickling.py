"""Public values and errors survive pickle and copy, because programs send them to processes."""

from __future__ import annotations

import builtins
import copy
import pickle
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from twisted.trial.unittest import SynchronousTestCase

import twistmq
from tests.protocol.test_plain_record import record as record_bytes
from twistmq.broker.api import store as store_api
from twistmq.broker.api.admin_commands import RegisteredBroker
from twistmq.broker.api.ledger import HardState, StoredEntry
from twistmq.broker.remoting.messages import Reply
from twistmq.client.base import codecs
from twistmq.client.base.errors import Attempt, Denied, SendFailed, Undecodable
from twistmq.client.base.messages import (
    Message,
    MessageQueue,
    PullResult,
    PullStatus,
    ReceivedMessage,
    SendResult,
)
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.consumer.flow_control import PullLimits
from twistmq.client.core.consumer.strategies import (
    Averagely,
    AveragelyByCircle,
    Configured,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
)
from twistmq.client.core.consumer.subscriptions import sql
from twistmq.client.core.pop.popped_message import PoppedMessage
from twistmq.client.core.pop.receipts import Receipt
from twistmq.integrations.tables.availability import Availability, Verdict
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import CopiedError, RemotingTimeout
from twistmq.protocol.lazy_properties import LazyProperties
from twistmq.protocol.record import MessageRecord, decode_record, encode_record

#: Modules whose ``__all__`` is public.
PUBLIC = (
    "twistmq.client", "twistmq.client.aio", "twistmq.client.tx", "twistmq.client.testing",
    "twistmq.client.base.codecs", "twistmq.client.base.errors", "twistmq.client.base.handlers",
    "twistmq.broker.api",
    *(f"twistmq.broker.api.{path.stem}" for path in sorted(
        Path(twistmq.__path__[0], "broker", "api").glob("[a-z]*.py"))))

WAYS: dict[str, Callable[[Any], Any]] = {
    **{f"pickle protocol {number}": lambda thing, number=number: pickle.loads(
        pickle.dumps(thing, number)) for number in range(2, pickle.HIGHEST_PROTOCOL + 1)},
    "copy": copy.copy, "deepcopy": copy.deepcopy}

QUEUE = MessageQueue("T", "a", 3)
RESULT = SendResult("ID", "OFFSET ID", QUEUE, 7, ResponseCode.FLUSH_DISK_TIMEOUT)
RECORD = record_bytes(b"x", properties="TAGS\x01t\x02KEYS\x01k\x02")
ATTEMPTS = [Attempt("a", 1.5, RemotingTimeout("no answer")),
            Attempt("b", 2.5, Denied(ResponseCode.NO_PERMISSION, "b answered 16: no"))]

#: Arguments of errors that need more than a text. A new error with other arguments is added here.
ERROR_ARGUMENTS: dict[str, tuple[object, ...]] = {
    "twistmq.broker.edge.boot.StartRefused": (253, "text"),
    "twistmq.protocol.errors.RequestRefused": (16, "text"),
    "twistmq.broker.request.large_sends.LargeBatch": (1, 2, {"a": "b"}),
    "twistmq.broker.request.pull._Forbidden": (3, "text"),
    "twistmq.broker.store.raw_log.RecordRefused": (5, "text"),
    "twistmq.broker.store.settings.StoreSettingFault": ("field", 1, "is wrong"),
    "twistmq.broker.supervisor.broker_process.StartFailed": (253, "text"),
    "twistmq.client.base.errors.NotSafe": (RESULT,),
    "twistmq.client.base.errors.SendFailed": ("T", ATTEMPTS),
    "twistmq.client.base.handlers.Retry": (3,),
    "twistmq.spark_bridge.stream_ends._Waits": (Verdict(Availability.AWAY, "text"),),
    **{f"twistmq.client.base.errors.{name}": (16, "text") for name in (
        "Busy", "Denied", "Rejected", "RequestRefused", "TopicMissing", "Unsupported")},
}


def _message_record() -> MessageRecord:
    found = MessageRecord("T", 3, b"x", "", 5, b"\x7f\0\0\1\0\0\0\1", b"\x7f\0\0\1\0\0\0\2", ["k"],
                          tags_code=4, stored=b"KEYS\x01k\x02")
    found.queue_offset, found.physical_offset, found.next_offset = 8, 9, 10
    found.store_timestamp, found.enters_queue = 11, False
    encode_record(found)
    return found


def _get_result() -> store_api.GetMessageResult:
    found = store_api.GetMessageResult(store_api.GetMessageStatus.FOUND, 4, 1, 9)
    found.messages.append(b"record")
    found.size, found.suggest_slave, found.message_count, found.filtered_count = 6, True, 2, 1
    return found


#: An example of each public class of values; structs and enumerations are made by themselves.
VALUES: dict[str, Callable[[], object]] = {
    "twistmq.client.core.consumer.flow_control.PullLimits": lambda: PullLimits(count=5),
    "twistmq.client.core.consumer.strategies.Averagely": Averagely,
    "twistmq.client.core.consumer.strategies.AveragelyByCircle": AveragelyByCircle,
    "twistmq.client.core.consumer.strategies.Configured": lambda: Configured(
        [MessageQueue("T", "a", 0)]),
    "twistmq.client.core.consumer.strategies.ConsistentHash": lambda: ConsistentHash(3),
    "twistmq.client.core.consumer.strategies.MachineRoom": lambda: MachineRoom(["room"]),
    "twistmq.client.core.consumer.strategies.MachineRoomNearby": lambda: MachineRoomNearby(
        Averagely(), len, len),
    "twistmq.broker.remoting.messages.Reply": lambda: Reply(0, body=b"x", remark="r"),
    "twistmq.broker.store.extension_unit.ExtensionUnit":
        lambda: store_api.ExtensionUnit(1, 2, b"x"),
    "twistmq.broker.store.get_message.GetMessageResult": _get_result,
    "twistmq.broker.store.ledger.ledger.StoredEntry": lambda: StoredEntry(1, 2, b"x", 3),
    "twistmq.broker.store.ledger.state_files.HardState": lambda: HardState(1, "n0", True),
    "twistmq.protocol.lazy_properties.LazyProperties": lambda: LazyProperties("a\x01b\x02"),
    "twistmq.protocol.record.MessageRecord": _message_record,
    "twistmq.protocol.record.StoredMessage": lambda: decode_record(RECORD, 0),
    "twistmq.protocol.signature.Credentials": lambda: import_module(
        "twistmq.protocol.signature").Credentials("access", "secret", "token"),
    "twistmq.tools.admin.session.Broker": lambda: RegisteredBroker(
        "DefaultCluster", "a", 0, "127.0.0.1:10911"),
    "twistmq.client.base.codecs.Serialiser": lambda: codecs.json_of(dict),
    "twistmq.client.core.consumer.subscriptions.Sql": lambda: sql("a = 1"),
    "twistmq.client.base.received_message.DamagedMessage": lambda: DamagedMessage(
        RECORD, decode_record(RECORD, 0), QUEUE, 7, "T", "the body's CRC does not match", False),
    "twistmq.client.base.received_message.ReceivedMessage": lambda: ReceivedMessage(
        RECORD, QUEUE, 7, "T"),
}

#: Public classes whose objects belong to one process: they have sockets, files, tables, functions
#: or a reactor. A program makes its own.
LIVE = frozenset({
    "twistmq.client.base.interceptors.Interceptor",
    "twistmq.tools.admin.rows.Command", "twistmq.tools.admin.rows.Option",
    "twistmq.tools.admin.session.Session",
    "twistmq.broker.client.name_servers.Registered",
    "twistmq.broker.config.settings.Setting", "twistmq.broker.config.settings.SettingCheck",
    "twistmq.broker.config.settings.Settings",
    "twistmq.broker.observe.metrics.Histogram", "twistmq.broker.observe.metrics.MetricFamily",
    "twistmq.broker.observe.statistics.Sums",
    "twistmq.broker.observe.supervisor_pages.PageAnswer",
    "twistmq.broker.observe.supervisor_pages.SupervisorPages",
    "twistmq.broker.remoting.host_shares.Shares",
    "twistmq.broker.request.settled_progress.SettledProgress",
    "twistmq.broker.remoting.messages.DeferredReply",
    "twistmq.broker.remoting.messages.RequestHandler",
    "twistmq.broker.remoting.request.Request",
    "twistmq.broker.request.acknowledgement.Stage",
    "twistmq.broker.request.client_table.Client",
    "twistmq.broker.request.client_table.ClientChange",
    "twistmq.broker.request.consume_context.ConsumeContext",
    "twistmq.broker.request.filters.PropertyFilter",
    "twistmq.broker.request.persisted_table.FileRows",
    "twistmq.broker.request.persisted_table.SavedTable",
    "twistmq.broker.request.send_context.SendBatch",
    "twistmq.broker.request.send_record.RecordMaker",
    "twistmq.broker.request.send_topic.SendTopics",
    "twistmq.broker.plugin.synced_table.SyncedTable",
    "twistmq.broker.request.waiting_by_tag.WaitingByTag",
    "twistmq.broker.scheduling.periodic.PeriodicTask",
    "twistmq.broker.store.config_file.ConfigFile",
    "twistmq.broker.store.consume_queue.ConsumeQueue",
    "twistmq.broker.store.inspect.dump.Wanted", "twistmq.broker.store.inspect.files.Segments",
    "twistmq.broker.store.inspect.layout.StoreFiles",
    "twistmq.broker.store.inspect.log_walk.LogWalk",
    "twistmq.broker.store.inspect.plugin_files.PluginFiles",
    "twistmq.broker.store.inspect.report.Report",
    "twistmq.broker.store.ledger.entry_log.EntryLog", "twistmq.broker.store.ledger.ledger.Ledger",
    "twistmq.broker.store.message_store.MessageStore",
    "twistmq.broker.store.segment_files.OpenFiles",
    *(f"twistmq.protocol.log_rate.{kind}" for kind in ("LimitedLog", "LineRate", "Outage")),
    "twistmq.protocol.signature.Signer",
    "twistmq.client.blocking.client.Client", "twistmq.client.blocking.consumer.Consumer",
    "twistmq.client.blocking.pop_consumer.PopConsumer", "twistmq.client.blocking.producer.Producer",
    "twistmq.client.blocking.pull_consumer.PullConsumer",
    "twistmq.client.testing.recording_producer.RecordingProducer",
    "twistmq.client.tx.service.ConsumerService",
    *(f"twistmq.client.{style}.{kind}" for style in ("aio", "tx") for kind in (
        "Client", "Consumer", "PopConsumer", "Producer", "PullConsumer")),
    *(f"twistmq.client.testing.cluster.Memory{kind}" for kind in (
        "Client", "Cluster", "Member", "PopMember", "Producer")),
})


def place_of(kind: type) -> str:
    """Return the full name of a class."""
    return f"{kind.__module__}.{kind.__name__}"


def public_classes() -> dict[str, type]:
    """Return all public classes except errors, by their full names."""
    found: dict[str, type] = {}
    for name in PUBLIC:
        module = import_module(name)
        for each in module.__all__:
            kind = getattr(module, each)
            if isinstance(kind, type) and not issubclass(kind, BaseException) and (
                    kind.__module__.startswith("twistmq.")):
                found[place_of(kind)] = kind
    return found


def _exceptions_by_module() -> dict[str, set[str]]:
    """The names of the exception classes that each module of the product defines, from its source.

    Only these modules are imported: all of them would take seconds.
    """
    classes: list[tuple[str, str, set[str]]] = []
    for root in map(Path, twistmq.__path__):
        for folder in filter(Path.is_dir, sorted(root.iterdir())):
            for path in sorted(folder.resolve().rglob("*.py")):
                parts = (folder.name, *path.relative_to(folder.resolve()).with_suffix("").parts)
                module = ".".join(("twistmq", *parts))
                for match in re.finditer(r"^class (\w+)(?:\[.*?\])?\(([^)]*)\)",
                                         path.read_text(encoding="utf-8"), re.MULTILINE):
                    bases = {each.strip().rpartition(".")[2] for each in match[2].split(",")}
                    classes.append((module, match[1], bases))
    known = {name for name, each in vars(builtins).items()
             if isinstance(each, type) and issubclass(each, BaseException)} | {"Refused"}
    found: dict[str, set[str]] = {}
    size = -1
    while len(known) != size:
        size = len(known)
        for module, name, bases in classes:
            if bases & known:
                known.add(name)
                found.setdefault(module, set()).add(name)
    return found


def all_errors() -> dict[str, type[BaseException]]:
    """Every exception class that a module of the product defines, by its full name."""
    found: dict[str, type[BaseException]] = {}
    for name, classes in sorted(_exceptions_by_module().items()):
        try:
            module = import_module(name)
        except ImportError as error:
            if error.name not in ("pyspark", "pyarrow", "numpy", "pandas"):
                raise
            continue
        for each in classes:
            kind = getattr(module, each)
            found[place_of(kind)] = kind
    return found


_EXAMPLES: dict[object, object] = {
    str: "text", int: 5, float: 1.5, bytes: b"bytes", bool: True,
    datetime: datetime(2026, 11, 28, 12, 30)}


def example(wanted: Any) -> object:
    """Return a value for the type of a field."""
    if wanted is Any:
        return "any"
    origin = get_origin(wanted)
    if origin is Literal:
        return get_args(wanted)[0]
    if origin in (Union, UnionType):
        return example(get_args(wanted)[0])
    if origin is not None and hasattr(wanted, "__metadata__"):
        return example(get_args(wanted)[0])
    if origin is not None:
        return {Sequence: tuple, Mapping: dict}.get(origin, origin)()
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        return struct_of(wanted)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return next(iter(wanted))
    return _EXAMPLES.get(wanted) or wanted()


def struct_of(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Return a struct whose fields are all set."""
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: example(hints[name]) for name in kind.__struct_fields__})


def state_of(thing: Any) -> object:
    """Return all fields of an object, to compare it with its copy."""
    if isinstance(thing, DamagedMessage):
        return (type(thing), thing.damage, thing.raw, thing.is_cut, thing.keys, thing.tags,
                thing.queue, thing.offset, thing.topic, thing.size, repr(thing))
    if isinstance(thing, ReceivedMessage):
        return (type(thing), thing.body, thing.value, thing.keys, thing.tags, thing.properties,
                thing.queue, thing.offset, thing.topic, thing.attempt, thing.lost, thing.id,
                thing.offset_id, thing.born_at, thing.flag, thing.size, repr(thing))
    if isinstance(thing, codecs.Serialiser):
        return repr(thing), thing.encode({"a": 1})
    if isinstance(thing, BaseException):
        return (type(thing), str(thing), thing.args,
                {name: state_of(each) for name, each in getattr(thing, "__dict__", {}).items()})
    if isinstance(thing, Attempt):
        return thing.broker_name, thing.duration_ms, state_of(thing.error)
    if isinstance(thing, list):
        return [state_of(each) for each in thing]
    if isinstance(thing, LazyProperties):
        return dict(thing)
    if isinstance(thing, str | int | bytes | tuple | Enum | msgspec.Struct | dict | None):
        return thing
    names = getattr(type(thing), "__slots__", None) or [
        name for name in dir(thing)
        if not name.startswith("_") and not callable(getattr(thing, name))]
    return type(thing), {name: getattr(thing, name) for name in names if not name.startswith("_")}


def raise_refused(number: int) -> None:
    """Raise an error in a worker of a pool."""
    raise Denied(ResponseCode.NO_PERMISSION, f"refused {number}")


class PicklingTests(SynchronousTestCase):
    """Each class, with each protocol of pickle and both kinds of copy."""

    def same(self, thing: object) -> None:
        """Check that an object and its copies are equal."""
        for way, copied in WAYS.items():
            with self.subTest(thing=place_of(type(thing)), way=way):
                self.assertEqual(state_of(copied(thing)), state_of(thing))

    def each_value(self) -> Iterator[object]:
        """An example of each public class of values is copied."""
        for name, kind in sorted(public_classes().items()):
            if name in VALUES:
                yield VALUES[name]()
            elif issubclass(kind, Enum):
                yield from kind
            elif issubclass(kind, msgspec.Struct):
                if kind is not RemotingCommand:
                    yield struct_of(kind)
            elif issubclass(kind, int):
                yield kind(5)
            elif not getattr(kind, "_is_protocol", False) and name not in LIVE:
                self.fail(f"{name} is public: give an example of it, or say that it is live")

    def test_each_public_value(self) -> None:
        """A class that is new must be listed, as a value or as a live object."""
        count = 0
        for thing in self.each_value():
            self.same(thing)
            count += 1
        self.assertGreater(count, 150)

    def test_each_error_of_the_product(self) -> None:
        """Type, text, arguments and attributes remain, also attributes that were added."""
        found = all_errors()
        self.assertGreater(len(found), 60, sorted(found))
        for name, kind in sorted(found.items()):
            error = kind(*ERROR_ARGUMENTS.get(name, ("text",)))
            if isinstance(error, CopiedError):
                error.added = "later"  # type: ignore[attr-defined]
            self.same(error)

    def test_messages(self) -> None:
        """Return a message to send, a result, and messages of a pull."""
        for thing in (Message("T", b"x", tags="t", keys=["k"], properties={"a": "b"}), RESULT,
                      PullResult(PullStatus.FOUND, 1, 2, 3, b"body", "remark"), codecs.text,
                      RemotingCommand(310, 5, ext_fields={"a": "b"}, body=b"x")):
            for copied in WAYS.values():
                again = copied(thing)
                self.assertIs(type(again), type(thing))
                if not isinstance(thing, codecs.Serialiser):
                    self.assertEqual(again, thing)

    def test_a_popped_message(self) -> None:
        """Its receipt remains."""
        receipt = Receipt(1, 2, 3, 4, "0", "a", 3, 7)
        message: PoppedMessage[bytes] = PoppedMessage(
            decode_record(RECORD, 0), QUEUE, 7, "T", None, receipt, QUEUE, 99.5)
        message.earlier_attempts = 2
        for copied in WAYS.values():
            again = copied(message)
            self.assertEqual(state_of(again), state_of(message))
            self.assertEqual((again.receipt, again.line, again.expires_ms), (receipt, QUEUE, 99.5))

    def test_a_message_with_a_decoder(self) -> None:
        """Its value remains, or the fault; the decoder may be a local function."""
        whole = ReceivedMessage(RECORD, QUEUE, 7, "T", lambda message: {"made of": message.body})
        broken: ReceivedMessage[Any] = ReceivedMessage(
            RECORD, QUEUE, 7, "T", lambda message: {}["no such key"])
        for copied in WAYS.values():
            again = copied(copied(whole))
            self.assertEqual((again.value, again.body), ({"made of": b"x"}, b"x"))
            with self.assertRaises(Undecodable) as caught:
                copied(copied(broken)).value  # noqa: B018
            self.assertIn("no such key", str(caught.exception))

    def test_a_message_whose_handler_failed(self) -> None:
        """An error that cannot be rebuilt is left out, and the message remains."""

        class Local(Exception):
            """A class that cannot be imported."""

        message: ReceivedMessage[bytes] = ReceivedMessage(RECORD, QUEUE, 7, "T")
        message.error = ValueError("of the handler")
        self.assertEqual(str(copy.copy(message).error), "of the handler")
        message.error = Local()
        again = pickle.loads(pickle.dumps(message))
        self.assertEqual((again.body, again.error), (b"x", None))

    def test_a_worker_of_a_pool_fails(self) -> None:
        """The parent gets the worker's error; formerly it waited for ever."""
        # The child has the parent's handlers; the one of a reactor does not end it on SIGTERM.
        with get_context("fork").Pool(
                1, signal.signal, (signal.SIGTERM, signal.SIG_DFL)) as pool:
            with self.assertRaises(Denied) as caught:
                pool.map_async(raise_refused, [7]).get(60)
            pool.close()
            pool.join()
        self.assertEqual((str(caught.exception), caught.exception.response_code),
                         ("refused 7", ResponseCode.NO_PERMISSION))

    def test_attempts_go_with_a_failed_send(self) -> None:
        """The attempts of an error remain, too."""
        again = pickle.loads(pickle.dumps(SendFailed("T", ATTEMPTS)))
        self.assertTrue(again.maybe_stored)
        self.assertEqual([str(each.error) for each in again.attempts],
                         ["no answer", "b answered 16: no"])
