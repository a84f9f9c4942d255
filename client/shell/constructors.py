"""Errors for constructor calls that Python itself would refuse with an error that names no option.

``Consumer("127.0.0.1:9876")`` lacks a group, and Python would raise a ``TypeError``. The client
raises an ``OptionError``, which names what is missing and what is allowed.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from functools import wraps
from typing import Any

from twistmq.client.base.errors import OptionError
from twistmq.client.base.unknown_names import unknown_name

__all__ = ["check_arguments"]


def check_arguments(kind: type, option_names: Collection[str]) -> None:
    """Make the constructor of a class check the names of its arguments before it runs.

    :param kind: a class whose only positional argument are the name servers.
    :param option_names: the keywords that are not parameters of the constructor itself.
    """
    make: Any = kind.__init__  # type: ignore[misc]
    parameters = list(inspect.signature(make).parameters.values())[1:]
    required = [each.name for each in parameters
                if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    known_names = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
    known_names.update(option_names)

    @wraps(make)
    def checked(self: Any, *arguments: Any, **options: Any) -> None:
        if len(arguments) > 1:
            names = " and ".join(f"{name}=..." for name in required) or "timeout_s=..."
            raise OptionError(f"{kind.__name__} takes only name servers by position, not "
                              f"{arguments[1]!r}: give everything else by its name, such as "
                              f"{names}")
        missing = [name for name in required if name not in options]
        if missing:
            for name in options:
                if name not in known_names:
                    raise OptionError(unknown_name("option", name, known_names))
            raise OptionError(f"{kind.__name__} needs "
                              + " and ".join(f"{name}=..." for name in missing))
        make(self, *arguments, **options)

    kind.__init__ = checked  # type: ignore[misc]
