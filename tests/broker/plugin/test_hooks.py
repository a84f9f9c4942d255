"""Plugins: their discovery, order and isolation."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from twisted.internet.defer import Deferred, fail
from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twistmq.broker import hookimpl
from twistmq.broker.config.settings import Setting
from twistmq.broker.errors import SettingsError
from twistmq.broker.plugin import hookspecs
from twistmq.broker.plugin.hook_kinds import KINDS
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.plugin.interfaces import IQueueLocks
from twistmq.broker.remoting.messages import Reply, RequestHandler
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.testing.store import message
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import BrokerError, RequestRefused, StoreDamaged, StoreError
from twistmq.protocol.record import MessageRecord

#: Hooks pass these on without looking at them.
BROKER: Any = object()
BATCH: Any = types.SimpleNamespace(requests=[object(), object(), object()])
REFUSED = RequestRefused(ResponseCode.NO_PERMISSION, "no")
OTHER = RequestRefused(ResponseCode.SYSTEM_BUSY, "later")


def plugin(**implementations: Callable[..., Any]) -> object:
    """Return a plugin with these functions as its hooks."""
    return types.SimpleNamespace(
        **{name: hookimpl(function) for name, function in implementations.items()})


def spec_names() -> list[str]:
    """The names of all hooks, in the order of the file."""
    return [name for name, value in vars(hookspecs).items() if hasattr(value, "twistmq_spec")]


class LoggedTestCase(SynchronousTestCase):
    """A test that keeps the log."""

    def setUp(self) -> None:
        self.events: list[LogEvent] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def logged(self) -> list[tuple[str, str]]:
        """Return (plugin, hook) of the events that name both."""
        return [(e["plugin"], e["hook"]) for e in self.events if "plugin" in e and "hook" in e]


class RegistrationTests(LoggedTestCase):
    """The plugins that are accepted."""

    def left_out(self, broken: object, why: str) -> None:
        """Log and notices name the plugin that is left out; another one works."""
        good = plugin(add_runtime_info=lambda: {"good": "1"})
        hooks = Hooks([("broken", broken), ("good", good)])
        self.assertEqual(hooks.plugin_names, ["good"])
        self.assertEqual(hooks.runtime_info(), {"good": "1"})
        self.assertEqual(hooks.notices, [f"plugin broken is left out: {why}"])
        self.assertEqual([e["plugin"] for e in self.events if "plugin" in e], ["broken"])
        self.assertEqual(self.flushLoggedErrors(), [])  # one line says it, without a traceback

    def test_misspelt_hook(self) -> None:
        """A hook that does not exist is reported, and the plugin's others are not used."""
        self.left_out(plugin(add_runtime_inf=lambda: {"bad": "1"},
                             add_runtime_info=lambda: {"bad": "1"}),
                      "unknown hook 'add_runtime_inf'")

    def test_misspelt_argument(self) -> None:
        """An argument that a hook does not have is reported."""
        self.left_out(plugin(add_runtime_info=lambda kernal: {"bad": "1"}),
                      "hook 'add_runtime_info' has no argument 'kernal'")

    def test_what_never_runs(self) -> None:
        """A wrapper, a generator, and a coroutine that is not waited for are reported."""
        def wrapper() -> Any:
            return (yield)

        def generator() -> Any:
            yield {}

        async def async_generator() -> Any:
            yield {}

        async def coroutine() -> dict[str, str]:
            return {}

        is_wrapper = "add_runtime_info is a wrapper: wrappers are not supported"
        for broken, why in (
            (types.SimpleNamespace(add_runtime_info=hookimpl(wrapper=True)(wrapper)), is_wrapper),
            (types.SimpleNamespace(add_runtime_info=hookimpl(hookwrapper=True)(wrapper)),
             is_wrapper),
            (plugin(add_runtime_info=coroutine),
             "add_runtime_info is async, but nothing waits for this hook"),
            (plugin(on_start=generator),
             "on_start is a generator, and would never run: return the answer"),
            (plugin(on_start=async_generator),
             "on_start is a generator, and would never run: return the answer"),
        ):
            self.events.clear()
            self.left_out(broken, why)

    def test_settings_of_others(self) -> None:
        """A plugin that declares a setting of another part is left out completely."""
        def rows(*settings: Setting) -> Callable[[], list[Setting]]:
            return lambda: list(settings)

        kernels = Setting("flushDiskType", "text", "ASYNC_FLUSH", "How.", source="Store")
        first = Setting("one.rate", "int", 1, "How fast.")
        for row, why in (
            (Setting("flushDiskType", "text", "x", "Mine."),
             "the setting flushDiskType is the kernel's"),
            (Setting("one.rate", "int", 2, "Mine."), "the setting one.rate is plugin one's"),
            (Setting("rate", "int", 2, "Mine."),
             "the setting rate has no dot in its name: such names are Apache's, and need the class "
             "they are from as source"),
        ):
            self.events.clear()
            hooks = Hooks([
                ("one", plugin(register_settings=rows(first))),
                ("cmdp", plugin(register_settings=rows(Setting("cmdp.a", "int", 1, "A."), row),
                                before_send=lambda batch: {0: REFUSED})),
                ("last", plugin(register_settings=rows(
                    Setting("timerWheelEnable", "flag", True, "On.", source="MessageStoreConfig"))))
            ])
            self.assertEqual([row.name for row in hooks.collect_settings([kernels])],
                             ["timerWheelEnable", "one.rate"])
            self.assertEqual(hooks.notices, [f"plugin cmdp is left out: {why}"])
            self.assertEqual(hooks.plugin_names, ["one", "last"])
            self.assertEqual(hooks.refuse_send(BATCH), {})
            self.assertEqual([e["plugin"] for e in self.events if "plugin" in e], ["cmdp"])

    def test_same_name(self) -> None:
        """Of two plugins with one name the later one is used."""
        hooks = Hooks([("a", plugin(add_runtime_info=lambda: {"from": "stock"})),
                       ("a", plugin(add_runtime_info=lambda: {"from": "third"}))])
        self.assertEqual(hooks.runtime_info(), {"from": "third"})

    def test_any_object_is_a_plugin(self) -> None:
        """A plugin without hooks does no harm; an object and a class are plugins."""
        class Counter:
            @staticmethod
            @hookimpl
            def add_runtime_info() -> dict[str, str]:
                return {"class": "1"}

        hooks = Hooks([("empty", object()), ("class", Counter)])
        hooks.make_plugins(BROKER)
        self.assertEqual(hooks.runtime_info(), {"class": "1"})
        self.assertEqual(hooks.plugin_names, ["empty", "class"])

    def test_no_plugin(self) -> None:
        """Without plugins every hook returns nothing, and the hot ones are empty."""
        hooks = Hooks()
        for name in ("before_request", "after_response", "before_send", "before_append",
                     "on_dispatch", "on_message_arrival", "after_send", "before_consume",
                     "after_consume"):
            self.assertEqual(getattr(hooks, name), (), msg=name)
        self.assertEqual(hooks.collect_settings(), [])
        self.assertEqual(hooks.collect_request_handlers(), {})
        self.assertIsNone(hooks.transaction_service())
        self.assertEqual(hooks.collect_access_validators(), [])


class MakingTests(LoggedTestCase):
    """Each broker creates its own object of a plugin."""

    def test_each_broker_makes_its_own(self) -> None:
        """The constructor gets the broker, and the object has the state."""
        class Counter:
            def __init__(self, broker: object) -> None:
                self.broker = broker
                self.count = 0

            @hookimpl
            def before_append(self, records: object) -> None:
                self.count += 1

            @hookimpl
            def add_runtime_info(self) -> dict[str, str]:
                return {"count": str(self.count)}

        one, other = Hooks([("counter", Counter)]), Hooks([("counter", Counter)])
        self.assertEqual((one.before_append, one.runtime_info()), ((), {}))
        brokers = [object(), object()]
        one.make_plugins(brokers[0])
        other.make_plugins(brokers[1])
        one.refuse_append([])
        self.assertEqual(one.runtime_info(), {"count": "1"})
        self.assertEqual(other.runtime_info(), {"count": "0"})
        made = [hooks.find(Counter) for hooks in (one, other)]
        self.assertEqual([each and each.broker for each in made], brokers)
        self.assertIsNone(Hooks().find(Counter))

    def test_declarations_need_no_object(self) -> None:
        """The class declares settings, before the broker exists and afterwards."""
        class Declares:
            rate = Setting("one.rate", "int", 1, "How fast.")

            def __init__(self, broker: object) -> None:
                self.broker = broker

            @classmethod
            @hookimpl
            def register_settings(cls) -> list[Setting]:
                return [cls.rate]

        hooks = Hooks([("one", Declares)])
        self.assertEqual(hooks.collect_settings(), [Declares.rate])
        hooks.make_plugins(BROKER)
        self.assertEqual(hooks.collect_settings(), [Declares.rate])

    def test_order_is_that_of_registration(self) -> None:
        """Classes and objects keep their order when the objects are created."""
        class Named:
            name = ""

            @hookimpl
            def add_runtime_info(self) -> dict[str, str]:
                return {"name": self.name}

        class First(Named):
            name = "first"

        class Last(Named):
            name = "last"

        middle = plugin(add_runtime_info=lambda: {"name": "middle"})
        rows: list[tuple[str, object]] = [("a", First), ("b", middle), ("c", Last)]
        hooks = Hooks(rows)
        hooks.make_plugins(BROKER)
        self.assertEqual(hooks.plugin_names, ["a", "b", "c"])
        self.assertEqual(hooks.runtime_info(), {"name": "last"})
        hooks = Hooks(rows[:2])
        hooks.make_plugins(BROKER)
        self.assertEqual(hooks.runtime_info(), {"name": "middle"})

    def failing(self, error: BaseException) -> type[object]:
        """Return a plugin whose constructor raises."""
        class Failing:
            def __init__(self, broker: object) -> None:
                raise error

            @hookimpl
            def add_runtime_info(self) -> dict[str, str]:
                return {"bad": "1"}

        return Failing

    def test_a_constructor_that_raises_leaves_the_plugin_out(self) -> None:
        """The plugin is logged and named in a notice; the others are made."""
        for error in (ZeroDivisionError("broken"), SystemExit("broken")):
            hooks = Hooks([("bad", self.failing(error)),
                           ("good", plugin(add_runtime_info=lambda: {"good": "1"}))])
            hooks.make_plugins(BROKER)
            self.assertEqual(hooks.plugin_names, ["good"])
            self.assertEqual(hooks.runtime_info(), {"good": "1"})
            self.assertEqual(hooks.notices, [
                f"plugin bad is left out: its constructor raised {type(error).__name__}: broken"])
            self.assertEqual(len(self.flushLoggedErrors(type(error))), 1)

    def test_a_constructor_stops_the_start(self) -> None:
        """A setting without meaning and a file that cannot be used stop the start."""
        for error in (SettingsError("one.rate=x"), StoreDamaged("one.dat is torn")):
            hooks = Hooks([("bad", self.failing(error))])
            self.assertIs(self.assertRaises(type(error), hooks.make_plugins, BROKER), error)

    def test_validators_that_cannot_be_made_deny(self) -> None:
        """A plugin that guards and cannot be made is replaced by one that denies."""
        class Guard:
            def __init__(self, broker: object) -> None:
                raise ZeroDivisionError("broken")

            @hookimpl
            def provide_access_validators(self) -> list[Any]:
                return []

        hooks = Hooks([("guard", Guard)])
        self.assertTrue(hooks.has_access_validators("aclEnable"))
        hooks.make_plugins(BROKER)
        [validator] = hooks.collect_access_validators()
        error = self.assertRaises(BrokerError, validator.validate, mock.sentinel.request)
        self.assertEqual((error.response_code, str(error)), (
            ResponseCode.NO_PERMISSION, "the plugin guard failed to supply its access validators"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_classes_that_do_not_fit(self) -> None:
        """A module, a declaration that needs an object, and a hook that pluggy does not see."""
        class Needs:
            @hookimpl
            def register_settings(self) -> list[Setting]:
                return []

        class Hidden:
            @hookimpl
            @staticmethod
            def register_settings() -> list[Setting]:
                return []

        for misfit, why in (
            (Needs, "register_settings is called before there is a broker: make it a "
                    "@staticmethod or a @classmethod"),
            (Hidden, "register_settings is not seen as a hook: write @staticmethod above "
                     "@hookimpl"),
            (types.ModuleType("mine"), "it is the module mine: make its hooks methods of a class "
             "that is called with its broker, and name that: mine:CLASS"),
        ):
            hooks = Hooks([("bad", misfit)])
            self.assertEqual((hooks.plugin_names, hooks.notices),
                             ([], [f"plugin bad is left out: {why}"]))
            self.assertEqual(self.flushLoggedErrors(), [])

    def test_provider_of_an_interface(self) -> None:
        """Plugins find each other by an interface, which the first-called plugin provides."""
        @implementer(IQueueLocks)
        class Locks:
            def keeps_order(self, group: str) -> bool:
                return True

        class Own(Locks):
            pass

        hooks = Hooks([("stock", Locks)])
        self.assertIsNone(hooks.provider(IQueueLocks))
        hooks.make_plugins(BROKER)
        self.assertIs(hooks.provider(IQueueLocks), hooks.find(Locks))
        own = Own()
        hooks.add("own", own)
        self.assertIs(hooks.provider(IQueueLocks), own)
        hooks.remove("own")
        self.assertIs(hooks.provider(IQueueLocks), hooks.find(Locks))
        hooks.remove("own")


class OrderTests(SynchronousTestCase):
    """The order of calls, and its consequences."""

    def test_last_registered_is_first(self) -> None:
        """The last plugin runs first, unless it says otherwise; third parties
        precede stock ones.
        """
        calls: list[str] = []

        def call(name: str) -> Callable[[], None]:
            return lambda: calls.append(name)

        class Last:
            on_dispatch = staticmethod(hookimpl(trylast=True)(call("last")))

        class First:
            on_dispatch = staticmethod(hookimpl(tryfirst=True)(call("first")))

        hooks = Hooks([("first", First), ("stock", plugin(on_dispatch=call("stock"))),
                       ("third", plugin(on_dispatch=call("third"))), ("last", Last)])
        hooks.make_plugins(BROKER)
        hooks.dispatched([])
        self.assertEqual(calls, ["first", "third", "stock", "last"])

    def test_subset_of_arguments(self) -> None:
        """An implementation gets the arguments that it names, in any order."""
        got: list[Any] = []
        hooks = Hooks([
            ("a", plugin(on_role_change=lambda broker_id, role: got.append((broker_id, role)))),
            ("b", plugin(on_role_change=lambda: got.append(()))),
            ("c", plugin(on_role_change=lambda role, broker_id: got.append(
                (role, broker_id)))),
        ])
        hooks.role_changed("SLAVE", 1)
        self.assertEqual(got, [("SLAVE", 1), (), (1, "SLAVE")])

    def test_first_called_wins(self) -> None:
        """Of handlers, languages, services and rows of the same name, the first-called is used."""
        def answers(number: int) -> object:
            language: Any = f"language {number}"
            return plugin(
                register_request_handlers=lambda: [
                    RequestHandler(1, lambda request: Reply(number))],
                register_filter_languages=lambda: {"X": language, f"only {number}": language},
                provide_transaction_service=lambda: f"service {number}",
                add_runtime_info=lambda: {"number": str(number)},
                register_settings=lambda: [Setting(f"s.{number}", "int", 0, "A number.")],
                register_periodic_tasks=lambda: [
                    PeriodicTask(f"t{number}", 0, 1, lambda now_ms: None)],
            )

        hooks = Hooks([("stock", answers(1)), ("third", answers(2)),
                       ("silent", plugin(provide_transaction_service=lambda: None))])
        [row] = hooks.collect_request_handlers().values()
        reply = row.handle(mock.sentinel.request)
        assert isinstance(reply, Reply)
        self.assertEqual(reply.code, 2)
        self.assertEqual(hooks.collect_filter_languages(),
                         {"X": "language 2", "only 1": "language 1", "only 2": "language 2"})
        self.assertEqual(hooks.transaction_service(), "service 2")
        self.assertEqual(hooks.runtime_info(), {"number": "2"})
        self.assertEqual([row.name for row in hooks.collect_settings()], ["s.2", "s.1"])
        self.assertEqual([t.name for t in hooks.collect_periodic_tasks()], ["t2", "t1"])

    def test_the_first_answer_ends_the_call(self) -> None:
        """For a hook with one answer, no plugin is called after the first answer."""
        hooks_with_one = {name for name, kind in KINDS.items() if kind.first_answer}
        self.assertEqual(hooks_with_one, {
            "provide_consumer_filters", "provide_transaction_service",
            "provide_broadcast_offsets", "provide_flow_control", "before_request",
            "before_consume", "choose_ledger_folder"})
        for hook in hooks_with_one:
            self.assertEqual(called_of_three(hook), ["c", "b"], msg=hook)

    def test_all_plugins_are_called_where_each_answer_counts(self) -> None:
        """For every other hook, all plugins are called."""
        for hook, kind in KINDS.items():
            if not kind.first_answer:
                self.assertEqual(sorted(called_of_three(hook)), ["a", "b", "c"], msg=hook)

    def test_hooks_that_may_wait_are_those_with_a_deferred_as_answer(self) -> None:
        """The mark of a hook and the answer that its specification allows agree."""
        for name in spec_names():
            answer = str(getattr(hookspecs, name).__annotations__["return"])
            self.assertEqual("Deferred" in answer, KINDS[name].may_wait, msg=name)

    def test_refusals_of_several(self) -> None:
        """The refusals of all plugins count; for one index the first called decides."""
        hooks = Hooks([("a", plugin(before_send=lambda batch: {0: REFUSED, 1: REFUSED})),
                       ("b", plugin(before_send=lambda batch: {1: OTHER})),
                       ("c", plugin(before_send=lambda batch: None))])
        self.assertEqual(hooks.refuse_send(BATCH), {0: REFUSED, 1: OTHER})

    def test_start_and_stop_wait(self) -> None:
        """``on_start`` and ``on_stop`` wait for a Deferred or a coroutine before the next."""
        calls: list[str] = []
        waiting: Deferred[None] = Deferred()

        async def coroutine() -> None:
            await waiting
            calls.append("coroutine")

        self.assertEqual({name for name, kind in KINDS.items() if kind.may_wait},
                         {"on_start", "on_stop", "on_namesrv_start", "on_namesrv_stop"})
        for hook, run in (("on_start", "start"), ("on_stop", "stop"),
                          ("on_namesrv_start", "start_namesrv"),
                          ("on_namesrv_stop", "stop_namesrv")):
            calls.clear()
            waiting = Deferred()
            hooks = Hooks([("last", plugin(**{hook: lambda: calls.append("plain")})),
                           ("first", plugin(**{hook: coroutine}))])
            done = Deferred.fromCoroutine(getattr(hooks, run)())
            self.assertEqual(calls, [])
            waiting.callback(None)
            self.successResultOf(done)
            self.assertEqual(calls, ["coroutine", "plain"])


def called_of_three(hook: str) -> list[str]:
    """The plugins that are called, in order, when all but the first that is called answer."""
    called: list[str] = []

    def answers(name: str, value: object) -> object:
        def implementation() -> object:
            called.append(name)
            return value
        return plugin(**{hook: implementation})

    refused = hook in ("before_request", "before_consume")
    hooks = Hooks([("a", answers("a", OTHER if refused else [])),
                   ("b", answers("b", REFUSED if refused else [])), ("c", answers("c", None))])
    IsolationTests.CALLS[hook][0](hooks)
    return called


def raises(*arguments: Any, **named: Any) -> Any:
    """Stand in for a broken plugin."""
    raise ZeroDivisionError("broken")


def raising_plugin() -> object:
    """Return a plugin that raises in every hook."""
    return plugin(**dict.fromkeys(spec_names(), raises))


class IsolationTests(LoggedTestCase):
    """The fault of a plugin does not affect others."""

    #: How the broker calls each hook, and what it gets when the only plugin raises.
    CALLS: Mapping[str, tuple[Callable[[Hooks], Any], Any]] = {
        "register_settings": (lambda h: h.collect_settings(), []),
        "register_setting_checks": (lambda h: h.collect_setting_checks(), []),
        "register_commands": (lambda h: h.collect_commands(), []),
        "register_store_files": (lambda h: h.collect_store_files(), {}),
        "choose_ledger_folder": (lambda h: h.ledger_folder(mock.sentinel.settings), None),
        "register_supervisor_pages": (
            lambda h: h.supervisor_pages(mock.sentinel.settings, mock.sentinel.brokers), []),
        "register_filter_languages": (lambda h: h.collect_filter_languages(), {}),
        "register_tags_codes": (lambda h: h.collect_tags_codes(), {}),
        "provide_transaction_service": (lambda h: h.transaction_service(), None),
        "claim_properties": (lambda h: h.claimed_properties(), frozenset()),
        "register_request_handlers": (lambda h: h.collect_request_handlers(), {}),
        "wrap_request_handlers": (lambda h: h.wrap_request_handlers({}), {}),
        "register_periodic_tasks": (lambda h: h.collect_periodic_tasks(), []),
        "register_synced_tables": (lambda h: h.collect_synced_tables(), []),
        "on_start": (lambda h: Deferred.fromCoroutine(h.start()).result, None),
        "before_request": (lambda h: h.refuse_request(mock.sentinel.request), None),
        "after_response": (lambda h: h.responded(mock.sentinel.request, Reply()), None),
        "before_send": (lambda h: h.refuse_send(BATCH), {}),
        "before_append": (lambda h: h.refuse_append([]), {}),
        "on_dispatch": (lambda h: h.dispatched([]), None),
        "on_message_arrival": (lambda h: h.arrived([]), None),
        "after_send": (lambda h: h.sent(BATCH), None),
        "before_consume": (lambda h: h.refuse_consume(mock.sentinel.context), None),
        "after_consume": (lambda h: h.consumed(mock.sentinel.context), None),
        "on_client_change": (lambda h: h.client_changed(mock.sentinel.change), None),
        "complete_topic_tables": (
            lambda h: h.complete_topic_tables(mock.sentinel.tables, True), None),
        "on_role_change": (lambda h: h.role_changed("SLAVE", 1), None),
        "on_half_message_discarded": (lambda h: h.half_message_discarded(b""), None),
        "add_runtime_info": (lambda h: h.runtime_info(), {}),
        "provide_broadcast_offsets": (lambda h: h.broadcast_offsets(), None),
        "provide_flow_control": (lambda h: h.flow_control(), None),
        "collect_metrics": (lambda h: h.metrics(), {}),
        "provide_consumer_filters": (lambda h: h.consumer_filters(), None),
        "provide_access_validators": (lambda h: h.collect_access_validators(), []),
        "on_namesrv_start": (
            lambda h: Deferred.fromCoroutine(h.start_namesrv()).result, None),
        "collect_namesrv_metrics": (lambda h: h.namesrv_metrics(), {}),
        "on_namesrv_stop": (
            lambda h: Deferred.fromCoroutine(h.stop_namesrv()).result, None),
        "on_stop": (lambda h: Deferred.fromCoroutine(h.stop()).result, None),
    }

    def test_every_hook_is_isolated(self) -> None:
        """In every hook an error counts as None, and is logged with the plugin's name."""
        self.assertEqual(set(self.CALLS), set(spec_names()))
        hooks = Hooks([("broken", raising_plugin())])
        self.assertEqual(hooks.plugin_names, ["broken"])
        for name, (call, expected) in self.CALLS.items():
            if name == "provide_access_validators":
                continue  # it denies: see test_access_is_denied
            self.events.clear()
            self.assertEqual(call(hooks), expected, msg=name)
            self.assertEqual([e["plugin"] for e in self.events if "plugin" in e], ["broken"],
                             msg=name)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1, msg=name)

    def test_wrapped_handlers(self) -> None:
        """The first-called plugin is outermost; a code without a handler remains without one."""
        def adds(letter: str) -> Callable[..., Any]:
            def wrap(handlers: Mapping[int, Any]) -> list[Any]:
                inner = handlers[1].handle
                return [RequestHandler(1, lambda request: letter + inner(request)),
                        RequestHandler(2, raises)]
            return wrap

        hooks = Hooks([(name, plugin(wrap_request_handlers=adds(name))) for name in "ab"])
        rows = {1: RequestHandler(1, lambda request: request), 3: RequestHandler(3, raises)}
        wrapped = hooks.wrap_request_handlers(rows)
        self.assertEqual(wrapped[1].handle("r"), "bar")
        self.assertEqual((set(wrapped), wrapped[3]), ({1, 3}, rows[3]))

    def test_consumer_filters(self) -> None:
        """The value of the last plugin is used; errors that stop a start are passed on."""
        keepers = [mock.sentinel.one, mock.sentinel.two]
        hooks = Hooks([(str(number), plugin(provide_consumer_filters=lambda keeper=keeper: keeper))
                       for number, keeper in enumerate(keepers)])
        self.assertIs(hooks.consumer_filters(), keepers[1])
        for error in (SettingsError, StoreError):
            def refuses(error: type[Exception] = error) -> None:
                raise error("no")
            hooks = Hooks([("a", plugin(provide_consumer_filters=refuses))])
            self.assertRaises(error, hooks.consumer_filters)

    def test_a_plugin_that_wants_to_end_the_process_has_no_say_in_that(self) -> None:
        """SystemExit of a plugin does not end the process."""
        def exits() -> None:
            raise SystemExit("the plugin gives up")

        hooks = Hooks([("broken", plugin(on_dispatch=exits, on_start=exits))])
        hooks.dispatched([])
        self.assertIsNone(self.successResultOf(Deferred.fromCoroutine(hooks.start())))
        self.assertEqual(len(self.flushLoggedErrors(SystemExit)), 2)

    def test_others_still_run(self) -> None:
        """Plugins before and after the one that raises are called."""
        calls: list[str] = []
        hooks = Hooks([("a", plugin(on_dispatch=lambda: calls.append("a"))),
                       ("b", plugin(on_dispatch=raises)),
                       ("c", plugin(on_dispatch=lambda: calls.append("c")))])
        hooks.dispatched([])
        self.assertEqual(calls, ["c", "a"])
        self.assertEqual(self.logged(), [("b", "on_dispatch")])
        self.flushLoggedErrors(ZeroDivisionError)

    def test_access_is_denied(self) -> None:
        """A plugin that cannot supply its validators is replaced by one that denies."""
        hooks = Hooks([("broken", plugin(provide_access_validators=raises))])
        [validator] = hooks.collect_access_validators()
        error = self.assertRaises(BrokerError, validator.validate, mock.sentinel.request)
        self.assertEqual(error.response_code, ResponseCode.NO_PERMISSION)
        self.assertIn("broken", str(error))
        self.flushLoggedErrors(ZeroDivisionError)

    def test_settings_of_access(self) -> None:
        """A plugin that cannot use its access settings stops the start."""
        def refuses() -> None:
            raise SettingsError("no such file")

        hooks = Hooks([("strict", plugin(provide_access_validators=refuses))])
        self.assertRaises(SettingsError, hooks.collect_access_validators)

    def test_wrong_answers(self) -> None:
        """An answer of a wrong type is logged and counts as None."""
        wrong: Mapping[str, Any] = {
            "register_settings": {"a": 1}, "register_commands": ["up"],
            "register_setting_checks": [lambda settings: None],
            "register_store_files": {"timers": 1}, "register_filter_languages": ["X"],
            "register_request_handlers": [1], "register_tags_codes": 7, "claim_properties": "DELAY",
            "register_synced_tables": [45], "register_supervisor_pages": ["/metrics"],
            "register_periodic_tasks": "often", "before_request": True,
            "before_send": {3: REFUSED}, "before_append": [REFUSED],
            "before_consume": True, "add_runtime_info": "fine", "after_response": True,
            "on_dispatch": Deferred(), "on_message_arrival": Deferred(), "after_send": [],
            "after_consume": 0, "on_client_change": Deferred(), "on_role_change": Deferred(),
            "complete_topic_tables": {}, "on_half_message_discarded": Deferred(),
        }
        for name, answer in wrong.items():
            hooks = Hooks([("wrong", plugin(**{name: lambda *ignored, given=answer: given}))])
            self.events.clear()
            call, expected = self.CALLS[name]
            self.assertEqual(call(hooks), expected, msg=name)
            self.assertEqual(self.logged(), [("wrong", name)], msg=name)

    def test_tags_codes(self) -> None:
        """The numbering of entries is guarded: if it raises, the tag's hash is used."""
        def make(record: MessageRecord) -> int:
            return 7 // len(record.body)

        hooks = Hooks([("one", plugin(register_tags_codes=lambda: {"T": make}))])
        codes = hooks.collect_tags_codes()
        self.assertEqual(codes["T"](message(body=b"1234567")), 1)
        empty = message(body=b"", tag="red")
        self.assertEqual(codes["T"](empty), empty.tags_code)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_start_that_a_plugin_stops(self) -> None:
        """A setting without meaning and a file that cannot be read stop the start."""
        for error in (SettingsError("s"), StoreDamaged("d")):
            def raises(error: Exception = error) -> None:
                raise error

            hooks = Hooks([("one", plugin(register_tags_codes=raises))])
            self.assertRaises(type(error), hooks.collect_tags_codes)

    def test_refusals_that_are_none(self) -> None:
        """Refusals must be errors by indexes of the batch."""
        for answer in ({-1: REFUSED}, {3: REFUSED}, {0: ValueError("no")}, {"0": REFUSED},
                       [REFUSED], REFUSED):
            hooks = Hooks([("wrong", plugin(before_send=lambda batch, given=answer: given))])
            self.assertEqual(hooks.refuse_send(BATCH), {}, msg=repr(answer))

    def test_settings_error_stops_the_start(self) -> None:
        """A plugin can refuse its settings."""
        hooks = Hooks([("a", plugin(on_start=lambda: fail(SettingsError("a.rate=x"))))])
        done = Deferred.fromCoroutine(hooks.start())
        self.assertEqual(str(self.failureResultOf(done, SettingsError).value), "a.rate=x")

    def test_store_error_stops_the_start(self) -> None:
        """A plugin can report that one of its files cannot be used."""
        hooks = Hooks([("a", plugin(on_start=lambda: fail(StoreDamaged("a.dat is torn"))))])
        done = Deferred.fromCoroutine(hooks.start())
        self.assertEqual(str(self.failureResultOf(done, StoreDamaged).value), "a.dat is torn")
