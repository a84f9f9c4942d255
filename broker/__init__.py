"""The kernel of twistmq: wire, store, name server and the requests that every broker serves.

A plugin needs two names from here: ``hookimpl`` marks its hook implementations, and
``hookspecs`` documents every hook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pluggy import HookimplMarker

    #: Marks a function or method of a plugin as the implementation of a hook.
    hookimpl: HookimplMarker

__all__ = ["hookimpl"]


def __getattr__(name: str) -> object:
    """Create ``hookimpl`` on first access, so that a client does not need pluggy."""
    if name != "hookimpl":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pluggy import HookimplMarker

    marker = globals()["hookimpl"] = HookimplMarker("twistmq")
    return marker
