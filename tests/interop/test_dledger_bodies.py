"""Mutated bodies of members mean to our reader what they mean to the readers of Apache's members.

Apache's members up to 5.5.0 read bodies by fastjson 1, and those of dledger 0.3.3 by fastjson 2.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET

from tests.interop.clients import JavaTestCase, java_classes
from tests.interop.peer import class_path, dledger_path, java_command
from tests.plugins.dledger.mutations import COUNT, Mutation, mutate
from tests.plugins.dledger.test_mutated_bodies import read_body
from twistmq.protocol.bodies.dledger import (
    PUSH_TYPES,
    VOTE_RESULTS,
    DLedgerBody,
    PushEntryRequest,
    VoteResponse,
)

#: How long Java may take for all bodies, seconds.
_SECONDS: Final = 120
#: The end of a body that is cut in the name of an enum. Fastjson 1 reads its last byte for ever, so
#: such bodies, of which there are few, count as refused by it.
_CUT_IN_ENUM: Final = re.compile(rb'"(type|voteResult)":"[^"]*$')
_CUT_MAX: Final = 40
#: The fields of a push that Java computes from its entries, and does not read.
_COMPUTED: Final[Mapping[str, Any]] = {
    "batch": False, "count": 0, "first_entry_index": -1, "last_entry_index": -1, "total_size": 0}
#: How the two readings of a body may differ.
WE_READ, JAVA_READS, OTHERWISE = "only we read it", "only Java reads it", "read otherwise"

#: The differences by the kind of the mutation. Java turns a list or an object into a text, ignores
#: whatever a computed field has, and reads an empty list as no entry. With fastjson 1 it also takes
#: broken base64 for bytes, and cuts a large number to its size. Such bodies are refused here. We
#: leave out nulls among entries, at which Java fails.
OF_FASTJSON_1: Final[Mapping[str, set[str]]] = {
    "no texts": {JAVA_READS}, "no numbers": {JAVA_READS}, "no entries": {JAVA_READS},
    "no bytes": {JAVA_READS}, "numbers beyond the range": {JAVA_READS},
    "nulls in lists": {WE_READ},
}
#: The reader of 4.9.4 does not take a boolean for a number.
OF_4_9_4: Final[Mapping[str, set[str]]] = {**OF_FASTJSON_1, "booleans as numbers": {WE_READ}}
#: Fastjson 2 reads a null number as 0, and not as the value of a field that was not sent.
OF_FASTJSON_2: Final[Mapping[str, set[str]]] = {
    "no texts": {JAVA_READS}, "no numbers": {JAVA_READS}, "no bytes": {JAVA_READS},
    "numbers beyond the range": {JAVA_READS}, "nulls": {OTHERWISE}, "nulls in lists": {WE_READ},
}


def ask_java(command: Sequence[str], mutations: Iterable[Mutation]) -> list[str]:
    """Let Java read all bodies; :returns: an answer of LedgerBodies.java for each of them."""
    lines = [f"{each.body_type.__name__} {base64.b64encode(each.data).decode()}\n"
             for each in mutations]
    process = subprocess.run([*command, "LedgerBodies"], input="".join(lines).encode(),
                             capture_output=True, timeout=_SECONDS, check=False)
    assert process.returncode == 0, process.stderr.decode()[-4000:]
    return process.stdout.decode().splitlines()


def comparable(
    body: DLedgerBody | None, names: Collection[str] | None = None
) -> DLedgerBody | None:
    """Return a body without what Java computes, and without enums that do not exist.

    :param names: the fields that Java wrote; it leaves out a null.
    """
    if isinstance(body, PushEntryRequest):
        for name, value in _COMPUTED.items():
            setattr(body, name, value)
        if body.type not in PUSH_TYPES or (names is not None and "type" not in names):
            body.type = UNSET
    if isinstance(body, VoteResponse) and (
            body.vote_result not in VOTE_RESULTS
            or (names is not None and "voteResult" not in names)):
        body.vote_result = UNSET
    return body


def difference(mutation: Mutation, answer: str) -> str:
    """Return how Java's reading of a body differs from ours; empty if both agree.

    :param answer: the answer of LedgerBodies.java.
    """
    ours = comparable(read_body(mutation, mutation.data))
    word, _, text = answer.partition(" ")
    if word != "read":
        return WE_READ if ours is not None else ""
    if ours is None:
        return JAVA_READS
    java = comparable(mutation.body_type.decode(text.encode()), json.loads(text))
    return OTHERWISE if ours != java else ""


def has_odd_keys(mutation: Mutation) -> bool:
    """Whether damage has made a key twice, or one that differs by its case only.

    Java takes the first or the last of such keys, depending on their order.
    """
    odd = False

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal odd
        keys = [key.lower().replace("_", "").replace("-", "") for key, _ in pairs]
        odd = odd or len(set(keys)) < len(keys)
        return dict(pairs)

    json.loads(mutation.data.decode(errors="replace"), object_pairs_hook=note)
    return odd


class BodyTests(JavaTestCase):
    """The mutations of ``tests/plugins/dledger/mutations.py``."""

    version = "5.5.0"

    def compare(
        self, jars: str, expected: Mapping[str, set[str]], *, ends: bool = True
    ) -> None:
        """Compare the readings of all mutations.

        :param jars: the class path with Apache's reader.
        :param expected: the differences by the kind of the mutation, all of which appear.
        :param ends: whether Java's reader of a body that is cut in an enum ends.
        """
        classes = java_classes(self.version, main="LedgerBodies")
        mutations = [mutate(seed) for seed in range(COUNT)]
        asked = [seed for seed, each in enumerate(mutations)
                 if ends or not _CUT_IN_ENUM.search(each.data)]
        answers = ["unread"] * COUNT
        replies = ask_java(java_command(self.folder / "java", [str(classes), jars]),
                           [mutations[seed] for seed in asked])
        for seed, reply in zip(asked, replies, strict=True):
            answers[seed] = reply
        self.assertGreater(len(asked), COUNT - _CUT_MAX)
        differences = defaultdict[str, set[str]](set)
        unexpected = []
        for seed, (mutation, answer) in enumerate(zip(mutations, answers, strict=True)):
            differs = difference(mutation, answer)
            if mutation.is_wild:
                # Damage may be read by one of the two only, but hardly ever otherwise.
                is_expected = differs != OTHERWISE or has_odd_keys(mutation)
            else:
                is_expected = not differs or differs in expected.get(mutation.kind, ())
                if differs:
                    differences[mutation.kind].add(differs)
            if not is_expected:
                unexpected.append(f"seed {seed}, {mutation.kind}, {differs}: {mutation.data!r} "
                                  f"{answer}")
        self.assertEqual(unexpected[:5], [])
        self.assertEqual(differences, expected)

    def test_the_reader_of_4_9_4(self) -> None:
        """It is fastjson 1.2.69."""
        self.compare(class_path("4.9.4"), OF_4_9_4, ends=False)

    def test_the_reader_of_5_5_0(self) -> None:
        """It is fastjson 1.2.83."""
        self.compare(class_path("5.5.0"), OF_FASTJSON_1, ends=False)

    def test_the_reader_of_dledger_0_3_3(self) -> None:
        """It is fastjson 2, as in the next versions of Apache's brokers."""
        self.compare(dledger_path("0.3.3.4"), OF_FASTJSON_2)
