"""Objects of an event loop in a plain ``with`` or ``for``: the error names the right form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from twistmq.client import OptionError, aio, tx
from twistmq.client.shell.transaction import AsyncTransaction

NAMESRV: Final = "127.0.0.1:9"


class AsyncOnlyTests(SynchronousTestCase):
    """Each class of the two styles, and transactions."""

    def setUp(self) -> None:
        """Create a reactor that is not the real one."""
        self.memory = MemoryReactorClock()

    def made(self, kind: str, **options: Any) -> list[Any]:
        """Return an object of each style."""
        return [getattr(aio, kind)(NAMESRV, **options),
                getattr(tx, kind)(NAMESRV, reactor=self.memory, **options)]

    def assert_says(self, words: str, call: Callable[[], object]) -> None:
        """Check that the error has these words."""
        self.assertIn(words, str(self.assertRaises(OptionError, call)))

    def test_a_plain_with_is_refused(self) -> None:
        """Nothing was opened before."""
        member = {"group": "g", "topics": "T"}
        objects = [*self.made("Client"), *self.made("Producer"), *self.made("Consumer", **member),
                   *self.made("PullConsumer", **member), *self.made("PopConsumer", **member)]
        self.assertEqual(len(objects), 10)
        for each in objects:
            self.assert_says("use `async with` in place of `with`", each.__enter__)
            with self.assertRaises(OptionError), each:
                self.fail("the block began")

    def test_a_plain_loop_is_refused(self) -> None:
        """This is so for consumers that can be iterated over."""
        for kind in ("Consumer", "PopConsumer"):
            for each in self.made(kind, group="g", topics="T"):
                self.assert_says("use `async for` in place of `for`", lambda: list(each))  # noqa: B023

    def test_a_transaction_is_neither_awaited_nor_in_a_plain_with(self) -> None:
        """Its block begins with ``async with``."""
        half: Any = AsyncTransaction.__new__(AsyncTransaction)
        self.assert_says("use `async with`", half.__enter__)
        self.assert_says("async with producer.transaction", half.__await__)
