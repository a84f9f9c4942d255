"""Converts keyword arguments of Python to the option texts that the reads of tables accept.

The name of an option is written as in the Spark bridge, ``startingTimestamp``, or in the style of
Python, ``starting_timestamp``. Its value is a text, or a value of Python that has a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from twistmq.integrations.tables.options import OptionError

__all__ = ["OptionValue", "option_texts"]

#: A value of an option; a list stands for a text with commas, and a mapping for a JSON object.
OptionValue = str | bool | int | datetime | Sequence[str] | Mapping[str, Any] | None


def option_texts(given: Mapping[str, OptionValue], known: Iterable[str]) -> dict[str, str]:
    """Convert keyword arguments to options with texts.

    :param given: the values by the names that the caller uses; None stands for no value.
    :param known: the names of all options. A name that is not among them remains as it is, so that
        the check of the options can refuse it.
    :raises OptionError: when a value has no text, or two names mean the same option.
    """
    by_plain_name = {_plain(name): name for name in known}
    texts: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            continue
        option = by_plain_name.get(_plain(name), name)
        if option in texts:
            raise OptionError(f"option {option}: given twice, under two names")
        texts[option] = _text(option, value)
    return texts


def _plain(name: str) -> str:
    """Return a name in lower case without dots and underscores, so that both styles are equal."""
    return name.replace("_", "").replace(".", "").lower()


def _text(option: str, value: object) -> str:
    """Return the text of a value; :raises OptionError: when values of its type have no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return _moment(option, value)
    if isinstance(value, Mapping):
        try:
            return json.dumps(value, default=lambda inner: _moment(option, inner))
        except (TypeError, ValueError) as error:
            raise OptionError(f"option {option}: {error}") from None
    if isinstance(value, Sequence) and all(isinstance(one, str) for one in value):
        if any("," in one for one in value):
            raise OptionError(f"option {option}: {list(value)!r}: a name must not contain a comma")
        return ",".join(value)
    raise OptionError(f"option {option}: a value of type {type(value).__name__} has no meaning")


def _moment(option: str, value: object) -> str:
    """Return the text of a time.

    :raises OptionError: when it has no zone. The author may have meant the zone of this machine or
        UTC, and the read would silently begin hours away.
    """
    if not isinstance(value, datetime):
        kind = "a date without a time" if isinstance(value, date) else (
            f"a value of type {type(value).__name__}")
        raise OptionError(f"option {option}: {kind} has no meaning")
    if value.utcoffset() is None:
        raise OptionError(f"option {option}: {value.isoformat()} has no time zone")
    return value.isoformat()
