"""The kernel of twistmq: wire, store, name server and the requests a broker cannot do without.

A plugin needs two names from here: ``hookimpl`` marks its hook implementations, and
``hookspecs`` documents every hook there is.
"""

from pluggy import HookimplMarker

__all__ = ["hookimpl"]

#: Marks a function or method of a plugin as the implementation of a hook.
hookimpl = HookimplMarker("twistmq")
