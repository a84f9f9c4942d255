"""Mutations of the bodies that members of 4.9.4 and 5.5.0 have sent, each with what it has to mean.

A seed determines a mutation. Most of them change the JSON value in a way whose meaning is known
from Java's rules: the body reads as another body, or it is refused. The others damage the bytes;
such a body may read as anything, or be refused.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from tests.protocol.bodies.test_dledger import TYPES, exchanges
from twistmq.plugins.dledger.translation import READERS
from twistmq.protocol.bodies.dledger import PUSH_TYPES, VOTE_RESULTS, DLedgerBody

__all__ = ["COUNT", "KINDS", "Mutation", "mutate"]

#: The mutations of a whole run.
COUNT: Final = 10_000
_ENUMS: Final = {"type": PUSH_TYPES, "voteResult": VOTE_RESULTS}
_TEXTS: Final = ("group", "leaderId", "localId", "remoteId", "transferId", "transfereeId")
_INT32: Final = ("code", "bodyCrc", "chainCrc", "channel", "magic", "size", "count")
#: Values that no number and no text of a body may have.
_WRONG: Final = ([], {}, [1], {"a": 1}, [[]])

Value = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A mutated body.

    ``code`` is the remoting code of the request, ``is_request`` tells whether the body is the
    request's. ``meaning`` is the body as members would write it, which ``data`` reads as; None: it
    is refused. If ``is_wild``, nothing is known.
    """

    kind: str
    code: int
    is_request: bool
    body_type: type[DLedgerBody]
    #: The body of the request, for a response.
    request: bytes
    data: bytes
    meaning: bytes | None
    is_wild: bool = False


@cache
def _captured() -> list[tuple[int, bytes, bytes, bool]]:
    """The bodies of all exchanges, with code, request and whether it is the request."""
    found: dict[bytes, tuple[int, bytes, bytes, bool]] = {}
    for version in ("4.9.4", "5.5.0"):
        for _, request, reply in exchanges(version):
            if request.code in READERS:
                found[request.body] = request.code, request.body, request.body, True
                found[reply.body] = request.code, request.body, reply.body, False
    return list(found.values())


def mutate(seed: int) -> Mutation:
    """The mutation of a seed."""
    draw = random.Random(seed)
    code, request, data, is_request = draw.choice(_captured())
    body_type = TYPES[code][0 if is_request else 1]
    kind = draw.choice(KINDS)
    changed = _MUTATORS[kind](draw, data)
    if changed is None:
        # The body has nothing of that kind.
        kind = "unknown keys"
        changed = _MUTATORS[kind](draw, data)
        assert changed is not None
    mutated, meaning = changed
    return Mutation(kind, code, is_request, body_type, request, mutated,
                    None if isinstance(meaning, str) else meaning, meaning == "wild")


_Changed = tuple[bytes, bytes | str] | None


def _written(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _objects(value: Value) -> list[Value]:
    """A body and its entries."""
    entries = [value["entry"]] if "entry" in value else value.get("batchEntry", [])
    return [value, *entries]


def _of_names(draw: random.Random, value: Value, is_wanted: Callable[[str, Any], bool]
              ) -> tuple[Value, str] | None:
    """One of the wanted members of a body or of its entries."""
    members = [(each, name) for each in _objects(value) for name, member in each.items()
               if is_wanted(name, member)]
    return draw.choice(members) if members else None


def _is_number(name: str, member: Any) -> bool:
    return isinstance(member, int) and not isinstance(member, bool)


def _replaced(is_wanted: Callable[[str, Any], bool],
              write: Callable[[random.Random, str, Any], tuple[Any, Any]]
              ) -> Callable[[random.Random, bytes], _Changed]:
    """Replace one member by another form, and in the meaning by another value.

    :param write: the form, and the value in the meaning: ``_ABSENT`` for none, ``_REFUSED`` if the
        body is refused.
    """
    def change(draw: random.Random, data: bytes) -> _Changed:
        value, meaning = json.loads(data), json.loads(data)
        place = _of_names(draw, value, is_wanted)
        if place is None:
            return None
        holder, name = place
        same = _objects(meaning)[next(
            at for at, each in enumerate(_objects(value)) if each is holder)]
        form, wanted = write(draw, name, holder[name])
        holder[name] = form
        if wanted is _REFUSED:
            return _written(value), "refused"
        same[name] = wanted
        if wanted is _ABSENT:
            del same[name]
        return _written(value), _written(meaning)
    return change


_ABSENT: Final = object()
_REFUSED: Final = object()


def _unknown_keys(draw: random.Random, data: bytes) -> _Changed:
    value = json.loads(data)
    for each in _objects(value):
        each[f"x{draw.randrange(1000)}"] = draw.choice(
            (None, 1, -2.5, True, "text", [], [1, [2, {}]], {"a": {"b": [None]}}))
    return _written(value), data


def _other_layout(draw: random.Random, data: bytes) -> _Changed:
    """Another order of the keys, and white space."""
    value = json.loads(data)
    names = list(value)
    draw.shuffle(names)
    return json.dumps({name: value[name] for name in names},
                      indent=draw.choice((None, 1, "\t"))).encode(), data


def _nulls_in_lists(draw: random.Random, data: bytes) -> _Changed:
    value = json.loads(data)
    if not value.get("batchEntry"):
        return None
    value["batchEntry"].insert(draw.randrange(len(value["batchEntry"]) + 1), None)
    return _written(value), data


def _bytes_as_numbers(draw: random.Random, name: str, member: str) -> tuple[Any, Any]:
    numbers: list[Any] = [byte - 256 if byte > 127 else byte
                          for byte in base64.b64decode(member)]
    if numbers and draw.random() < 0.5:
        at = draw.randrange(len(numbers))
        numbers[at] = str(numbers[at])
    return numbers, member


def _cut(draw: random.Random, data: bytes) -> _Changed:
    return data[:draw.randrange(len(data))], "refused"


def _no_object(draw: random.Random, data: bytes) -> _Changed:
    return draw.choice((
        b"", b"null", b"7", b"[]", b"[" + data + b"]", _written(data.decode()), data + data,
        data + b"x", b"\xff" + data, b"[" * 3000, b'{"a":' * 3000)), "refused"


def _damaged(draw: random.Random, data: bytes) -> _Changed:
    damaged = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(len(damaged))
        kind = draw.randrange(4)
        if kind == 0:
            damaged[at] = draw.randrange(256)
        elif kind == 1:
            damaged[at] = draw.choice(b'{}[]",:0123456789-.eE\\nulltruefalse')
        elif kind == 2:
            del damaged[at:at + draw.randrange(1, 9)]
        else:
            damaged[at:at] = damaged[at:at + draw.randrange(1, 30)]
        if not damaged:
            break
    return bytes(damaged), "wild"


_MUTATORS: Final[dict[str, Callable[[random.Random, bytes], _Changed]]] = {
    "unknown keys": _unknown_keys,
    "other layout": _other_layout,
    "numbers as texts": _replaced(_is_number, lambda draw, name, number: (str(number), number)),
    "numbers as fractions": _replaced(
        _is_number, lambda draw, name, number: (
            number + (-0.5 if number < 0 else 0.5), number)),
    "booleans as numbers": _replaced(
        lambda name, member: _is_number(name, member) and name not in ("code", "magic", "size"),
        lambda draw, name, number: (True, 1)),
    "nulls": _replaced(lambda name, member: name not in ("magic", "size", "body", *_ENUMS),
                       lambda draw, name, member: (None, _ABSENT)),
    "nulls in lists": _nulls_in_lists,
    "ordinals": _replaced(
        lambda name, member: name in _ENUMS,
        lambda draw, name, member: (_ENUMS[name].index(member), member)),
    "bytes as numbers": _replaced(
        lambda name, member: name == "body" and isinstance(member, str), _bytes_as_numbers),
    "numbers beyond the range": _replaced(_is_number, lambda draw, name, number: (
        draw.choice((1, -1)) * draw.choice(
            (3 << 30, 1 << 40) if name in _INT32 else (1 << 64, 1 << 70, 10 ** 30)), _REFUSED)),
    "no numbers": _replaced(_is_number, lambda draw, name, number: (
        draw.choice((*_WRONG, "x", "1x", "0x10", "--1")), _REFUSED)),
    "no texts": _replaced(lambda name, member: name in _TEXTS, lambda draw, name, member: (
        draw.choice(_WRONG), _REFUSED)),
    "no bytes": _replaced(
        lambda name, member: name == "body" and isinstance(member, str),
        lambda draw, name, member: (
            draw.choice(("_-8=", "a", "a===", "ab c", {}, ["x"], [[]], [{}], 7)), _REFUSED)),
    "no entries": _replaced(
        lambda name, member: name in ("entry", "batchEntry"),
        lambda draw, name, member: (
            draw.choice((7, "x", True, [7] if name == "batchEntry" else [])), _REFUSED)),
    "cut": _cut,
    "no object": _no_object,
    "damaged": _damaged,
}
#: The kinds of mutations.
KINDS: Final = tuple(_MUTATORS)
