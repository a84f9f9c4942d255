"""Text of others for a terminal or a log: it moves no cursor, and begins no line of its own."""

from __future__ import annotations

__all__ = ["escaped", "json_printable", "one_line"]


def escaped(text: str) -> str:
    """Text that is safe on a terminal and in a log: what is no printable character is escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode()
                   for each in text)


def one_line(text: str) -> str:
    """A text as one line: a server's remark may have several, and must not forge one of a log."""
    return escaped(" ".join(text.split()))


def json_printable(text: str) -> str:
    """JSON that a terminal can be shown; it says the same.

    JSON itself escapes the control characters below a blank, but not those from U+007F on, or those
    that turn the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _json_escape(each) for each in text)


def _json_escape(character: str) -> str:
    code = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{code[at : at + 2].hex()}" for at in range(0, len(code), 2))
