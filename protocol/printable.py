"""Makes the texts of other programs safe to print on a terminal and to write into a log."""

from __future__ import annotations

__all__ = ["escaped", "json_printable", "one_line"]


def escaped(text: str) -> str:
    """Return a text in which every character that is not printable is escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode()
                   for each in text)


def one_line(text: str) -> str:
    """Return a text as one line, because the remark of a server could forge a line of a log."""
    return escaped(" ".join(text.split()))


def json_printable(text: str) -> str:
    """Escape the characters of a JSON text that are not printable; its meaning stays the same.

    JSON itself requires escapes for the control characters below a blank, but not for the
    characters from U+007F on or for characters that change the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _json_escape(each) for each in text)


def _json_escape(character: str) -> str:
    code = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{code[at : at + 2].hex()}" for at in range(0, len(code), 2))
