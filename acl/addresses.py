"""Patterns of addresses from which requests pass without a signature.

    (blank)                              no address
    *   *.*.*.*   *:*:*:*:*:*:*:*        every address
    10.0.0.1   2001:db8::1               one address
    10.0.0.1,10.0.0.2                    several, without blanks between them
    10.0.0.{1,2,3}   2001:db8::{1,2}     several that differ in the last part
    10.0.1-20.*   10.0.0.1-200           ranges; decimal, in any part but the first
    2001:db8::1-200:*   2001:db8::1-2f   ranges; hexadecimal, in the last part, or before a *

A ``*`` at the end of an IPv6 pattern with fewer than eight parts and without ``::`` stands for all
missing parts.

Differs from Apache: every part of a pattern is compared, while Apache's broker stops at the first
range, so that ``10.*.1.1`` matches ``10.2.3.4``. A pattern such as ``*.1.1.1``, which Apache's
broker accepts but cannot evaluate for any request, is refused when it is read.

Source: RemoteAddressStrategyFactory, AclUtils @4.9.4.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NoReturn

from twistmq.acl.errors import AclError

__all__ = ["AddressPattern", "parse_pattern", "parts_of"]

_EVERY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
#: The number of parts of an address, and the largest value of a part.
_V4: Final = (4, 255)
_V6: Final = (8, 0xFFFF)

#: The lowest and highest value of one part.
Range = tuple[int, int]
#: The parts of an address: 4 numbers of 8 bits, or 8 numbers of 16 bits.
Parts = tuple[int, ...]


class AddressPattern:
    """The addresses that one text of a file allows.

    :param alternatives: tuples with a range for each part; an address must match one of them.
    """

    __slots__ = ("_alternatives", "text")

    def __init__(self, text: str, alternatives: Iterable[tuple[Range, ...]]) -> None:
        self.text = text
        self._alternatives = tuple(alternatives)

    def matches(self, address: str) -> bool:
        """Whether an address, given without its port, matches."""
        if self.text in _EVERY:
            return True
        parts = parts_of(address) if self._alternatives else None
        return parts is not None and any(
            len(ranges) == len(parts)
            and all(low <= part <= high for part, (low, high) in zip(parts, ranges, strict=True))
            for ranges in self._alternatives)


@lru_cache(maxsize=4096)
def parts_of(address: str) -> Parts | None:
    """Return an address as numbers, or None if it is not an address.

    An IPv4 address within IPv6 is returned as IPv4.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            packed = parsed.packed
            return tuple(packed[at] << 8 | packed[at + 1] for at in range(0, 16, 2))
        parsed = parsed.ipv4_mapped
    return tuple(parsed.packed)


def parse_pattern(text: str | None) -> AddressPattern:
    """Parse a pattern.

    :raises AclError: when it is not valid; the text is Apache's.
    """
    if text is None or not text.strip():
        return AddressPattern("", ())
    if text in _EVERY:
        return AddressPattern(text, ())
    if text.endswith("}"):
        return AddressPattern(text, [_single(one) for one in _braces(text)])
    if "," in text:
        return AddressPattern(text, [_single(one) for one in text.split(",") if one])
    if "*" in text or "-" in text:
        return AddressPattern(text, [_v6_ranges(text) if ":" in text else _v4_ranges(text)])
    return AddressPattern(text, [_single(text)])


def _single(text: str) -> tuple[Range, ...]:
    parts = None if "%" in text else parts_of(text)
    if parts is None:
        raise AclError(f"Netaddress examine Exception netaddress is {text}")
    return tuple((part, part) for part in parts)


def _braces(text: str) -> list[str]:
    separator = ":" if ":" in text else "."
    head, _, last = text.rpartition(separator)
    if separator == "." and head.count(".") < 2:
        raise AclError(f"MultipleRemoteAddressStrategy has got a/some wrong format IP(s) {text}")
    if not last.startswith("{"):
        raise AclError("MultipleRemoteAddressStrategy netaddress examine scope Exception "
                       f"netaddress {text}")
    return [f"{head}{separator}{one}" for one in last[1:-1].split(",") if one]


def _out_of_scope(text: str) -> NoReturn:
    raise AclError(f"Netaddress examine scope Exception netaddress is {text}")


def _v4_ranges(text: str) -> tuple[Range, ...]:
    parts = [part.strip() for part in text.split(".")]
    count, max_value = _V4
    if len(parts) != count or not parts[0].isdecimal():
        _out_of_scope(text)
    return tuple(_range(part, 10, max_value, text) for part in parts)


def _v6_ranges(text: str) -> tuple[Range, ...]:
    count, max_value = _V6
    head, gap, tail = text.partition("::")
    before = head.split(":") if head else []
    after = tail.split(":") if tail else []
    written = [*before, *after]
    # A range can only be the last part, or the part before a star at the end.
    if "*" in written[:-1] or any("-" in part for part in written[:-2]) or (
            "-" in "".join(written[-2:-1]) and written[-1] != "*"):
        _out_of_scope(text)
    missing = count - len(written)
    if missing < 0 or (missing and not gap and written[-1] != "*"):
        _out_of_scope(text)
    ranges = [_range(part, 16, max_value, text) for part in written]
    if gap:
        at = len(before)
        ranges[at:at] = [(0, 0)] * missing
    else:
        ranges += [(0, max_value)] * missing
    if not any(part != "*" for part in written):
        _out_of_scope(text)
    return tuple(ranges)


_DIGITS: Final = {10: re.compile(r"[0-9]{1,3}"), 16: re.compile(r"[0-9a-fA-F]{1,4}")}


def _range(part: str, base: int, max_value: int, text: str) -> Range:
    """Parse one part: a number, a range of two numbers, or a star."""
    if part == "*":
        return 0, max_value
    if part.startswith("-"):
        raise AclError("RangeRemoteAddressStrategy netaddress examine scope Exception "
                       f"value {part} ")
    low, minus, high = part.partition("-")
    if not minus:
        high = low
    if _DIGITS[base].fullmatch(low) is None or _DIGITS[base].fullmatch(high) is None:
        _out_of_scope(text)
    start, end = int(low, base), int(high, base)
    if not start <= end <= max_value:
        if not minus:
            _out_of_scope(text)
        raise AclError("RangeRemoteAddressStrategy netaddress examine scope Exception "
                       f"start is {start} , end is {end}")
    return start, end
