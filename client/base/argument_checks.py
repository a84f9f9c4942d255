"""Checks of plain arguments that a program gives to a call: texts and whole numbers.

Without such a check, a wrong argument would fail somewhere inside the client, with an error of
Python that does not name the argument.
"""

from __future__ import annotations

from collections.abc import Mapping

from twistmq.client.base.errors import OptionError

__all__ = ["check_attributes", "check_text", "check_whole"]


def check_text(value: object, name: str) -> None:
    """:raises OptionError: when an argument is not a text.

    :param name: the name of the argument, which the error contains.
    """
    if not isinstance(value, str):
        raise OptionError(f"{name} is {value!r}: give a text")


def check_whole(value: object, name: str, lowest: int = 0) -> None:
    """:raises OptionError: when an argument is not a whole number.

    :param name: the name of the argument, which the error contains.
    :param lowest: the least number that is allowed.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise OptionError(f"{name} is {value!r}: give a whole number of at least {lowest}")


def check_attributes(attributes: object) -> None:
    """:raises OptionError: when an argument cannot be sent as the attributes of a topic."""
    if attributes is None:
        return
    if not isinstance(attributes, Mapping) or not all(
            isinstance(text, str) and text and not set(text) & {",", "="}
            for pair in attributes.items() for text in pair):
        raise OptionError(f"attributes are {attributes!r}: give a dict of texts without , and =")
