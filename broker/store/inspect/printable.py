"""Text of others for a terminal: names, keys and bodies must not move its cursor or its title."""

from __future__ import annotations

__all__ = ["escaped", "json_printable"]


def escaped(text: str) -> str:
    """Text a terminal can be shown: what is no printable character is escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode()
                   for each in text)


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
