"""Functions that a program gives to the client: those whose call does nothing are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, Final
from unittest.mock import AsyncMock, Mock

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tests.client.roles.styles import STYLES
from twistmq import client
from twistmq.client import Interceptor, OptionError, aio, tx
from twistmq.client.base.functions import call_fault
from twistmq.client.core.consumer.strategies import Averagely
from twistmq.client.shell.options import CONSUMER, POP_CONSUMER, PRODUCER, PULL_CONSUMER

NAMESRV: Final = "127.0.0.1:9"


def plain(value: Any = None) -> None:
    """A function that can be called."""


async def coroutine(value: Any = None) -> None:
    """A function that must be awaited."""


def generator(value: Any = None) -> Iterator[None]:
    """A function whose call does nothing."""
    yield


async def async_generator(value: Any = None) -> AsyncIterator[None]:
    """Another function whose call does nothing."""
    yield


class Callable:
    """An object whose call is a coroutine."""

    async def __call__(self, value: Any = None) -> None:
        """See the class."""


class Sender(Interceptor):
    """An interceptor that cannot be called."""

    async def before_send(self, topic: str, properties: dict[str, str]) -> None:  # type: ignore[override]
        """See ``Interceptor``."""


class Divider(Averagely):
    """A strategy that cannot be called."""

    async def allocate(self, *arguments: Any) -> Any:  # type: ignore[override]
        """See ``Strategy``."""


COROUTINES: Final[list[Any]] = [
    coroutine, partial(coroutine, 5), partial(partial(coroutine), 5), Callable(),
    Callable().__call__, AsyncMock()]
GENERATORS: Final[list[Any]] = [generator, async_generator, partial(generator, 5)]


class FaultTests(SynchronousTestCase):
    """The effect of a call of a function."""

    def test_the_fault_of_a_function(self) -> None:
        """A coroutine function is right where it is awaited, and a generator nowhere."""
        for function in (plain, partial(plain, 5), print, int, Mock(), "".join):
            self.assertIsNone(call_fault(function, is_awaited=False), msg=repr(function))
        for function in COROUTINES:
            self.assertIn("coroutine function", call_fault(function, is_awaited=False) or "")
            self.assertIsNone(call_fault(function, is_awaited=True), msg=repr(function))
        for function in GENERATORS:
            self.assertIn("generator", call_fault(function, is_awaited=True) or "")


class OptionTests(SynchronousTestCase):
    """Options that are functions or objects with methods, in each style."""

    def assert_refused(self, kind: str, name: str, value: object, styles: Any = STYLES) -> None:
        """Check that each style refuses a function and names the option."""
        more: dict[str, Any] = {} if kind == "Producer" else {"group": "g", "topics": "T"}
        for style in styles:
            error = self.assertRaises(OptionError, getattr(style.module, kind), NAMESRV,
                                      **style.more, **more, **{name: value})
            self.assertIn(f"option {name}", str(error), msg=f"{style.name} {kind} {name}")
            self.assertIn("give a plain function", str(error))

    def test_each_option_refuses_a_function_that_would_not_run(self) -> None:
        """Generators are refused, and so are coroutine functions unless the style awaits them."""
        count = 0
        for kind, rows in (("Producer", PRODUCER), ("Consumer", CONSUMER),
                           ("PullConsumer", PULL_CONSUMER), ("PopConsumer", POP_CONSUMER)):
            for row in rows:
                if row.kinds != ("function",):
                    continue
                count += 1
                for function in GENERATORS:
                    self.assert_refused(kind, row.name, function)
                for function in COROUTINES:
                    self.assert_refused(kind, row.name, function,
                                        STYLES[:1] if row.may_be_awaited else STYLES)
        self.assertEqual(count, 11)

    def test_objects_with_methods(self) -> None:
        """Each method of an interceptor or a strategy is called without an await."""
        self.assert_refused("Producer", "interceptors", [Interceptor(), Sender()])
        self.assert_refused("Consumer", "interceptors", [Sender()])
        self.assert_refused("Consumer", "strategy", Divider())

    def test_event_loops_await_on_check(self) -> None:
        """An object whose call is a coroutine is awaited as well."""
        memory = MemoryReactorClock()
        in_memory: dict[str, Any] = {"reactor": memory}
        makers: list[Any] = [aio.Producer, partial(tx.Producer, **in_memory)]
        for make in makers:
            for function in COROUTINES:
                producer = make(NAMESRV, on_check=function)
                self.assertEqual(producer._sender.checks.decide, producer._decide)
            producer = make(NAMESRV, on_check=plain)
            self.assertNotEqual(producer._sender.checks.decide, producer._decide)
        memory.advance(0)

    def test_a_blocking_producer_names_what_to_give(self) -> None:
        """This is the first error that a new user sees."""
        error = self.assertRaises(OptionError, client.Producer, NAMESRV, on_check=coroutine)
        self.assertEqual(str(error), "option on_check is a coroutine function, which is not "
                                     "awaited here; give a plain function")
