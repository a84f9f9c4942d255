"""Expressions and properties for which Apache's filter library and ours must agree.

    python -m tests.interop.capture_golden filter

captures the library's answers; ``filter_answers`` and ``bloom_answers`` ask it live.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.interop.clients import java_classes
from tests.interop.peer import class_path, java_command

__all__ = ["BLOOM_NAMES", "BLOOM_SIZES", "EXPRESSIONS", "PROPERTIES",
           "TAKEN_HERE", "bloom_answers", "filter_answers"]

#: What the property a of an expression may be; the others are the same everywhere but once.
_A_VALUES: Final = (
    "5", "-5", "+5", "0", "-0", "05", "5.0", "5.5", " 5 ", "5l", "5d", "0x1p2", "1e3", ".5", "5.",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807",
    "9223372036854775808", "1" * 50, "0" * 60 + "5", "1e400", "NaN", "-NaN", "Infinity",
    "-Infinity", "true", "TRUE", "True", "false", "x", "", "it's", "abc", "Abc", "ä", "\uff15",
    "\u0665", "\U0001d7d3", "1_000", "--5", "5 5", "\t5\n", "\u00a05", "null", "0x10", "1e-400",
)
PROPERTIES: Final[Sequence[Mapping[str, str]]] = (
    {}, *({"a": value, "b": "5", "c": "abc", "t": "true", "d": "2.5"} for value in _A_VALUES),
    {"b": "5"}, {"a": "5"}, {"A": "5"}, {"a": "5", "b": "7"}, {"a": "5", "b": "x"},
    {"a": "0.0", "b": "-0.0"}, {"a": "NaN", "b": "nan"}, {"a": "NaN", "b": "NaN"},
    {"a": "1e1", "b": "0xap0"}, {"$x": "1", "_y": "2", "a1": "3"}, {"TAGS": "T", "KEYS": "k l"},
)

_COMPARISONS: Final = tuple(
    f"{left} {sign} {right}"
    for sign in ("=", "<>", ">", ">=", "<", "<=")
    for left, right in (
        ("a", "5"), ("5", "a"), ("a", "5L"), ("a", "3000000000"), ("a", "5.0"), ("a", "-5"),
        ("-5.5", "a"), ("a", "b"), ("a", "'5'"), ("'5'", "a"), ("a", "'x'"), ("a", "TRUE"),
        ("FALSE", "a"), ("a", "NULL"), ("NULL", "a"), ("5", "5"), ("5", "5.0"), ("5", "5L"),
        ("3000000000", "3000000000.0"), ("'x'", "5"), ("5", "'5'"), ("5", "TRUE"), ("TRUE", "5"),
        ("TRUE", "TRUE"), ("TRUE", "'true'"), ("'true'", "TRUE"), ("-a", "5"), ("5", "-a"),
        ("-a", "-b"), ("(a = 5)", "TRUE"), ("TRUE", "(a = 5)"), ("(a = 5)", "t"),
        ("t", "(a = 5)"), ("(a = b)", "(b = 5)"), ("(a > 5)", "5"), ("+a", "+5"), ("- -a", "b"),
        ("a", "- -5"), ("5.5", "-2147483648"), ("a", "-2147483648"), ("a", "2147483648"),
        ("-TRUE", "a"), ("a", "-'x'"), ("-(a > 'x')", "b"), ("-(a > b)", "b"),
    )
)
EXPRESSIONS: Final = (
    *_COMPARISONS,
    # Conditions that are not comparisons.
    "a", "NOT a", "NOT NOT a", "(a)", "-a", "+a", "TRUE", "false", "NULL", "NOT NULL", "NOT TRUE",
    "5", "'x'", "5.5", "-5", "NOT 5", "a AND b", "a OR TRUE", "TRUE AND NULL", "NULL OR TRUE",
    # NULL.
    "a IS NULL", "a IS NOT NULL", "a is null is null", "a IS NOT NULL IS NULL", "5 IS NULL",
    "NULL IS NULL", "NULL IS NOT NULL", "-a IS NULL", "(a > 5) IS NULL", "(a > b) IS NULL", "a IS",
    "a IS NOT", "a IS 5", "a IS NOT 5", "a IS TRUE", "a NOT NULL", "TAGS IS NOT NULL",
    # Three values.
    "a = 5 AND b = 5", "a = 5 OR b = 5", "a > 5 AND b = 5", "b = 5 AND a > 5", "b = 7 AND a > 5",
    "b = 5 OR a > 5", "b = 7 OR a > 5", "NOT (a = 5)", "NOT (a = 5 AND b = 5)", "NOT a = 5",
    "n = 1 OR b = 5", "n = 1 AND b = 5", "n = 1 AND b = 6", "n = 1 OR n = 2", "NOT n = 1",
    "NOT (n = 1)", "n <> 1", "n = 1 OR a > 5", "n = 1 AND a > 5", "n IS NULL AND a > 5",
    "a = 5 OR b = 5 AND d = 2.5", "(a = 5 OR b = 5) AND d = 2.5", "n = n", "n = m", "n <> m",
    "a = 5 AND b = 5 AND d = 2.5 OR n IS NULL", "a = 5 AND", "AND a = 5", "a = 5 OR OR b = 5",
    # BETWEEN.
    "a BETWEEN 1 AND 5", "a NOT BETWEEN 1 AND 5", "a BETWEEN 5 AND 1", "a NOT BETWEEN 5 AND 1",
    "a BETWEEN 1 AND 5.5", "a BETWEEN 5.5 AND 5", "a BETWEEN 5L AND 5", "a BETWEEN -5 AND 5",
    "a BETWEEN 5 AND -5", "a BETWEEN b AND d", "a BETWEEN d AND b", "5 BETWEEN a AND b",
    "5 BETWEEN 1 AND 9", "a BETWEEN 'a' AND 'z'", "a BETWEEN NULL AND 5", "a BETWEEN 1 AND NULL",
    "a NOT BETWEEN NULL AND 5", "a BETWEEN TRUE AND FALSE", "a BETWEEN 1 AND 5 AND b = 5",
    "a BETWEEN 1 AND 5 BETWEEN 1 AND 5", "n BETWEEN 1 AND 5", "n NOT BETWEEN 1 AND 5",
    "NOT a BETWEEN 1 AND 5", "NOT (a BETWEEN 1 AND 5)", "a BETWEEN 1 AND n", "a BETWEEN n AND 5",
    "a NOT BETWEEN n AND 5", "a NOT BETWEEN 1 AND n", "a BETWEEN 1", "a BETWEEN 1 AND",
    "a BETWEEN (1) AND (5)", "a BETWEEN 'x' AND 5", "'x' BETWEEN 1 AND 5", "a BETWEEN 1 OR 5",
    "(a = 5) BETWEEN 1 AND 5", "a NOT 5", "a between 1 and 5 or n between 1 and 5",
    # IN.
    "a IN ('5')", "a IN ('5', 'x', 'it''s')", "a NOT IN ('5', 'x')", "a IN ('')", "n IN ('5')",
    "n NOT IN ('5')", "a IN (5)", "a IN ()", "a IN ('5',)", "a IN '5'", "(a) IN ('5')",
    "'5' IN ('5')", "-a IN ('5')", "+a IN ('5')", "(a = 5) IN ('TRUE')", "NOT a IN ('5')",
    "NOT (a IN ('5'))", "a IN ('5') IN ('x')", "a IN ('1','2','3','4','5','6')",
    "a NOT IN ('1','2','3','4','5','6')", "a IN ('5') AND b IN ('5')", "a IN (NULL)", "a IN ('x'",
    # Parts of texts.
    "a CONTAINS '5'", "a NOT CONTAINS '5'", "a CONTAINS ''", "a NOT CONTAINS ''",
    "c CONTAINS 'b'", "c STARTSWITH 'a'", "c NOT STARTSWITH 'a'", "c ENDSWITH 'c'",
    "c NOT ENDSWITH 'c'", "c STARTSWITH 'abcd'", "c STARTSWITH ''", "c NOT STARTSWITH ''",
    "c ENDSWITH ''", "c NOT ENDSWITH ''", "n CONTAINS 'x'", "n NOT CONTAINS 'x'",
    "n STARTSWITH 'x'", "n NOT STARTSWITH 'x'", "n ENDSWITH 'x'", "n NOT ENDSWITH 'x'",
    "a CONTAINS ''''", "a CONTAINS 'ä'", "a CONTAINS 'B'", "'abc' CONTAINS 'b'", "5 CONTAINS '5'",
    "5 NOT CONTAINS '5'", "TRUE CONTAINS 'T'", "NULL NOT CONTAINS 'x'", "a CONTAINS b",
    "a CONTAINS 5", "a CONTAINS", "(a = 5) CONTAINS 'x'", "(a = 5) NOT CONTAINS 'x'",
    "(a > 5) CONTAINS ''", "-a CONTAINS '5'", "a CONTAINS '5' CONTAINS '5'",
    "c CONTAINS 'b' = TRUE", "TRUE = c CONTAINS 'b'", "NOT c CONTAINS 'b'",
    "NOT (c CONTAINS 'b')", "c contains 'a' and c startsWith 'a' and c EndsWith 'c'",
    # Chains.
    "a = 5 = TRUE", "a = b = TRUE", "TRUE = a = 5", "a > 5 > 3", "a = 5 > 3", "a > b = FALSE",
    "a > b = t", "a = 5 IS NULL", "a > 5 IS NULL", "a <> 5 <> TRUE", "a = b <> t",
    # What does not exist, and what is almost there.
    "a LIKE 'x'", "a LIKE '5%' ESCAPE '\\'", "a != 5", "a == 5", "a + 1 = 6", "a * 2 = 10",
    "a = 5 && b = 5", "a = 5; b = 5", "a = \"5\"", "a = `5`", "a.b = 5", "a-b = 5", "a:b = 5", "",
    " ", "()", "(", ")", "(a = 5", "a = 5)", "((a = 5))", "(((((a)))) = 5)", "a = 5 garbage",
    "a = 5 5", "a = 5 'x'", "a = 5 #", "a = 5 garbage #", "a = 5 (b = 7)", "a b = 7", "a (b)",
    "a IS NULL > 5", "a IS NULL IN ('x')", "a IS NULL NOT IN ('x')", "(a IS NULL > 5)", "a = 5 NOT",
    "a = 5 NOT b", "a = 5 IS b", "a NOT b", "n IS NULL NOT", "a = 5 TRUE", "a = 5 NULL",
    # Numbers.
    "a = 05", "a = 0", "a = 0L", "a = 00", "a = 0.0", "a = 0.5", "a = .5", "a = 5.", "a = 5.e0",
    "a = 5E0", "a = 5e+0", "a = 50e-1", "a = 5e", "a = 5e+", "a = 5f", "a = 5d", "a = 5.0f",
    "a = 0x5", "a = 5l", "a = 5LL", "a = 1e400", "a = 1e-400", "a = 4.9E-324", "a = 2e-324",
    "a = 1.7976931348623157E308", "a = 1.8E308", "a = 9223372036854775807",
    "a = 9223372036854775808", "a = -9223372036854775808", "a = -9223372036854775807",
    "a = 9223372036854775807L", "a = 99999999999999999999", "a = 2147483647", "a = -2147483649",
    "a = 5.5.5", "a = 1.2.3 AND b = 5", "a = 00.5", "a = 007.0", "a = 1_000", "a = \uff15",
    "a < 9007199254740993", "9007199254740993 = 9007199254740992.0", "a >= 0.1", "a <= 1e3",
    # Names and words.
    "A = 5", "$x = 1", "_y = 2", "a1 = 3", "1a = 3", "ä = 5", "a = 5 and A IS NULL",
    "aNd = 5", "not = 5", "nota = 5", "isnull IS NULL", "IN IN ('x')", "contains CONTAINS 'x'",
    "true = 5", "trueish IS NULL", "null", "nul", "between BETWEEN 1 AND 2", "b Is NoT nUlL",
    "TAGS = 'T'", "TAGS in ('T') and KEYS contains 'k'", "i\u017f IS NULL", "KEYS \u0130S NULL",
    # Texts.
    "c = 'abc'", "c = 'ABC'", "c = 'a''bc'", "a = 'it''s'", "a = 'it's'", "a = '", "a = '''",
    "a = ''''", "a = ''", "a <> ''", "a = 'x\ny'", "a = 'ä'", "a = 'abc' AND c = 'abc'",
    # Blanks and comments.
    "a=5", "a\t=\n5", "a = 5 -- end", "a = 5 -- end\n", "a -- middle\n = 5", "a /* in */ = 5",
    "a = 5 /* open", "a /**/ = 5", "a /* * ** */ = 5", "a /* x */ */ = 5", "-- all\na = 5",
    "/* all */", "a = --5", "a --b\r\n= 5", "a\f=\f5", "a\v= 5", "a\u00a0= 5", "a=-5",
    "a = 5--", "a - b", "a =5OR b=5", "a=5OR b=5", "a IN('5')", "NOT(a=5)", "a=5AND b=5",
)

#: Expressions that Apache's library refuses and ours takes on purpose: a double of 0.
TAKEN_HERE: Final = frozenset(("a = 0.0",))

#: Error rates and numbers of names of Bloom filters, and names of every length up to 40.
BLOOM_SIZES: Final = (*((rate, 32) for rate in range(1, 100)), (20, 1), (20, 64), (10, 128),
                      (1, 1000), (99, 1), (20, 33))
BLOOM_NAMES: Final = ("G1#T1", "grüppe#töpic", "\u540d#\u540d",
                      *("please_rename_unique_group_name#Topic1234567"[:size]
                        for size in range(1, 41)))


def filter_answers(
    expressions: Iterable[str], properties: Sequence[Mapping[str, str]], folder: Path,
    version: str = "5.3.3",
) -> list[list[str]]:
    """Ask Apache's library: for each expression a word for each map of properties.

    :param folder: for what Java writes.
    :returns: TRUE, FALSE, NULL, ERROR; or one REFUSED.
    """
    maps = "".join(f" {','.join(f'{_hex(n)}={_hex(v)}' for n, v in each.items())}"
                   for each in properties)
    asked = [f"{_hex(expression)}{maps}" for expression in expressions]
    return [line.split(" ") for line in _ask("FilterTable", asked, folder, version)]


def bloom_answers(
    sizes: Iterable[tuple[int, int]], names: Sequence[str], folder: Path, version: str = "5.3.3",
) -> list[dict[str, Any]]:
    """Ask Apache's library which bits names have.

    :param sizes: error rates in percent, and numbers of names.
    :returns: what was asked, bit_num, hash_num, and positions by name.
    """
    asked = list(sizes)
    lines = _ask("BloomTable", [f"{rate} {count} {' '.join(map(_hex, names))}"
                                for rate, count in asked], folder, version)
    rows = []
    for (rate, count), line in zip(asked, lines, strict=True):
        bit_num, hash_num, *positions = line.split(" ")
        rows.append({
            "error_rate": rate, "names": count, "bit_num": int(bit_num), "hash_num": int(hash_num),
            "positions": {name: [int(each) for each in row.split(",")]
                          for name, row in zip(names, positions, strict=True)}})
    return rows


def _ask(program: str, lines: Iterable[str], folder: Path, version: str) -> list[str]:
    classes = java_classes(version, Path(__file__).resolve().parent / "filter_java")
    command = java_command(folder, [str(classes), class_path(version)])
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run([*command, program], input=text.encode(), capture_output=True,
                          check=True, timeout=120)
    return done.stdout.decode().splitlines()


def _hex(text: str) -> str:
    return text.encode().hex()
