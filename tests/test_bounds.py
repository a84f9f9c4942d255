"""Every type into which foreign bytes are decoded has Java's bounds for its numbers.

A number without a bound is saved, registered and sent on, and then the next reader refuses the
whole of it. As a key it is worse: integers, floats and decimals can be chosen so that thousands of
them hash alike, and a dict or a set of those takes quadratic time.
"""

from __future__ import annotations

import ast
import importlib
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import msgspec.inspect as inspect
from twisted.trial.unittest import SynchronousTestCase

from tests.former_places import FORMER_PLACES
from twistmq.protocol.bodies import Body
from twistmq.protocol.header import CommandHeader

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = ("acl", "broker", "client", "console", "integrations", "plugins", "protocol",
                  "spark_bridge", "raft", "tools", "trace", "transaction")
#: Modules that need what an environment for the tests may lack, and that read no JSON.
PARTS_MISSING: Final = ("pyspark", "pyarrow", "taskiq", "opentelemetry")
#: Structs that are states of a part, which no bytes are read into, and whose sets are its own.
NEVER_READ: Final = ("twistmq.client.core.producer.sender.PendingSend",)
#: Largest number that a key or a stored number may be: a Java long.
BITS_MAX: Final = 64
#: Calls that read JSON, or values from it, into a type: the place of the type among the arguments,
#: and its name.
READERS: Final = {"Decoder": (0, "type"), "decode": (None, "type"), "convert": (1, "type")}


def module_name(path: Path) -> str:
    """Return the import name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("twistmq", *(parts[:-1] if parts[-1] == "__init__" else parts)))


@cache
def modules() -> tuple[tuple[Path, Any], ...]:
    """Import and return each module that can be imported here."""
    return tuple(_modules())


def _modules() -> Iterator[tuple[Path, Any]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ("formats" in path.parts or "dropin" in path.parts
                    or str(path.relative_to(ROOT)) in FORMER_PLACES):
                continue
            try:
                yield path, importlib.import_module(module_name(path))
            except ImportError as error:
                assert any(part in str(error) for part in PARTS_MISSING), f"{path}: {error}"


def subclasses(base: type) -> Iterator[type]:
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


def structs(base: type) -> list[type]:
    """The classes of the product that a class is the base of."""
    return [each for each in dict.fromkeys(subclasses(base))
            if each.__module__.startswith("twistmq.")]


def is_bounded(number: inspect.IntType) -> bool:
    """Whether both ends are limited, by at most 64 bits."""
    least = number.ge if number.ge is not None else number.gt
    most = number.le if number.le is not None else number.lt
    return (least is not None and most is not None
            and least >= -2**(BITS_MAX - 1) and most <= 2**(BITS_MAX - 1))


def faults(kind: inspect.Type, numbers: bool, place: str = "", key: bool = False,
           seen: tuple[type, ...] = ()) -> Iterator[str]:
    """Return the places where a type accepts a number that it should not.

    :param numbers: whether plain numbers are looked at too, and not only keys and sets.
    :param key: whether ``kind`` is the type of a key or of a member of a set.
    """
    def inner(other: inspect.Type, more: str, is_key: bool) -> Iterator[str]:
        return faults(other, numbers, place + more, is_key, seen)

    if isinstance(kind, inspect.IntType):
        if (key or numbers) and not is_bounded(kind):
            yield f"{place}: int without a bound"
    elif isinstance(kind, inspect.FloatType | inspect.DecimalType | inspect.UUIDType):
        if key:
            yield f"{place}: {type(kind).__name__} as a key"
    elif isinstance(kind, inspect.AnyType | inspect.CustomType | inspect.RawType):
        if key:
            yield f"{place}: a key of any type"
    elif isinstance(kind, inspect.DictType):
        yield from inner(kind.key_type, ".key", True)
        yield from inner(kind.value_type, ".value", key)
    elif isinstance(kind, inspect.SetType | inspect.FrozenSetType):
        yield from inner(kind.item_type, ".member", True)
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield from inner(kind.item_type, ".item", key)
    elif isinstance(kind, inspect.TupleType):
        for number, each in enumerate(kind.item_types):
            yield from inner(each, f"[{number}]", key)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from inner(each, "", key)
    elif isinstance(kind, inspect.StructType | inspect.DataclassType | inspect.TypedDictType
                    ) and kind.cls not in seen:
        for each in kind.fields:
            yield from faults(each.type, numbers, f"{place}.{each.name}", key,
                              (*seen, kind.cls))


def read_types(path: Path, module: Any) -> Iterator[tuple[str, Any]]:
    """Return the types in a module's calls, as far as the module knows them."""
    text = path.read_text()
    if "msgspec" not in text and "convert" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(
            node.func, "id", "")
        if name not in READERS:
            continue
        position, keyword = READERS[name]
        found = [each.value for each in node.keywords if each.arg == keyword]
        if position is not None and len(node.args) > position:
            found.append(node.args[position])
        for each in found:
            named = ast.unparse(each)
            try:
                kind = eval(named, vars(module))
            except NameError:
                # A type that a caller gives: a Body, which is looked at, or a user's own.
                continue
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {named}", kind


class BoundsTests(SynchronousTestCase):
    """All types of the product."""

    def setUp(self) -> None:
        self.modules = modules()

    def found(self, kinds: list[type], numbers: bool) -> list[str]:
        """Return the faults of classes, except those that only type checkers know."""
        found = []
        for kind in kinds:
            try:
                fields = inspect.type_info(kind)
            except NameError:
                continue
            found += [f"{kind.__module__}.{kind.__qualname__}{fault}"
                      for fault in faults(fields, numbers)]
        return found

    def test_no_key_can_be_chosen(self) -> None:
        """No dict and no set in a class that JSON is decoded into has such keys."""
        kinds = [kind for kind in structs(msgspec.Struct)
                 if f"{kind.__module__}.{kind.__qualname__}" not in NEVER_READ]
        self.assertGreater(len(kinds), 200)
        self.assertEqual(self.found(kinds, numbers=False), [])

    def test_bodies_and_headers_have_javas_numbers(self) -> None:
        """Data that is stored or sent on can be read by the next program."""
        for base in (Body, CommandHeader):
            kinds = structs(base)
            self.assertGreater(len(kinds), 60)
            self.assertEqual(self.found(kinds, numbers=True), [])

    def test_types_that_are_read_without_a_class(self) -> None:
        """``decode(data, type=dict[...])`` and the like."""
        found = [each for path, module in self.modules for each in read_types(path, module)]
        self.assertGreater(len(found), 8)
        texts = []
        for place, kind in found:
            if isinstance(kind, type) or getattr(kind, "__origin__", None) is not None:
                texts += [f"{place}{fault}" for fault in faults(inspect.type_info(kind), False)]
        self.assertEqual(texts, [])


class WalkTests(SynchronousTestCase):
    """The walk over types."""

    def test_what_it_notices(self) -> None:
        """Keys at any depth are found; numbers only on request."""
        class Inner(msgspec.Struct, frozen=True):
            number: int

        for kind, count in ((dict[int, str], 1), (dict[str, set[int]], 1), (dict[str, int], 0),
                            (list[dict[float, str]], 1), (dict[Inner, str], 1),
                            (frozenset[tuple[str, int]], 1), (dict[Any, str], 1),
                            (dict[bool, str], 0), (dict[str, dict[int, int]] | None, 1),
                            (list[int], 0)):
            self.assertEqual(len(list(faults(inspect.type_info(kind), False))), count, msg=kind)
        self.assertEqual(len(list(faults(inspect.type_info(list[int]), True))), 1)
        self.assertFalse(is_bounded(inspect.IntType(ge=0)))
        self.assertFalse(is_bounded(inspect.IntType(ge=0, le=int(math.ldexp(1, 70)))))
