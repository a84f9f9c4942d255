"""Serialisers for models of pydantic."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

from pydantic import BaseModel, Field
from twisted.trial.unittest import SynchronousTestCase

from twistmq.client import OptionError, Undecodable, model_of


class Read:
    """A received message."""

    def __init__(self, body: bytes) -> None:
        self.body = body


class Bill(BaseModel):
    """A model with a limit and an alias."""

    number: int = Field(gt=0)
    name: str = Field(default="", alias="buyer")


class ModelTests(SynchronousTestCase):
    """The conversion between models and bodies."""

    def test_models_come_back(self) -> None:
        """The bodies use the aliases; this works in another process, too."""
        bills = model_of(Bill)
        body = bills.encode(Bill(number=3, buyer="Ada"))
        self.assertEqual(body, b'{"number":3,"buyer":"Ada"}')
        self.assertEqual(bills(Read(body)), Bill(number=3, buyer="Ada"))
        self.assertEqual(pickle.loads(pickle.dumps(bills))(Read(body)).name, "Ada")

    def test_a_body_that_the_model_refuses_is_undecodable(self) -> None:
        """The error names the model and the field."""
        for body in (b'{"number":0}', b'{"number":"x"}', b"{", b"\xff"):
            error = self.assertRaises(Undecodable, model_of(Bill), Read(body))
            self.assertIn("JSON of Bill", str(error))

    def test_another_value_is_refused(self) -> None:
        """A value of another class is refused even if it has the same fields."""
        for value in ({"number": 3}, None, Read(b"")):
            error = self.assertRaises(OptionError, model_of(Bill).encode, value)
            self.assertIn("not a Bill", str(error))

    def test_another_class_is_refused_at_once(self) -> None:
        """The error names the serialiser for other types."""
        kinds: tuple[Any, ...] = (int, Read, Bill(number=1), None)
        for kind in kinds:
            error = self.assertRaises(OptionError, model_of, kind)
            self.assertIn("json_of", str(error))

    def test_pydantic_is_not_needed_for_the_client(self) -> None:
        """The name can be imported without it."""
        code = ("import sys; from twistmq.client import model_of; "
                "assert 'pydantic' not in sys.modules")
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
