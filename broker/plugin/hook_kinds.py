"""A table of how the broker calls each hook, from the marks of the specifications."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pluggy

__all__ = ["KINDS", "HookKind", "hookspec"]

F = TypeVar("F", bound=Callable[..., Any])
_mark: Final = pluggy.HookspecMarker("twistmq")


@dataclass(frozen=True, slots=True)
class HookKind:
    """How the broker calls a hook."""

    #: Whether it is called before a broker exists, so that it must be a static or class method.
    is_declaration: bool = False
    #: Whether the caller waits for the Deferred or coroutine that an implementation returns.
    may_wait: bool = False
    #: Whether the call stops at the first plugin that answers, that is, returns something other
    #: than None.
    first_answer: bool = False


#: The kind of each hook, by name.
KINDS: Final[dict[str, HookKind]] = {}


def hookspec(
    *, is_declaration: bool = False, may_wait: bool = False, first_answer: bool = False
) -> Callable[[F], F]:
    """Mark a specification; see HookKind."""
    def marked(function: F) -> F:
        KINDS[function.__name__] = HookKind(is_declaration, may_wait, first_answer)
        return _mark(function, firstresult=first_answer)

    return marked
