"""Which modules are compiled at install, and whether they were.

An installation with a C compiler turns the modules below into extensions by mypyc; one without
uses the same sources as they are. To compile one more module, add its line. A module can be
compiled when it is fully typed, is a leaf (no Twisted, no msgspec classes of its own), and nothing
needs to replace its names from outside. ``setup.py`` runs this file by its path, before anything
is installed: it may import the standard library only.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final

__all__ = ["COMPILED_MODULES", "TYPE_FLAGS", "compiled_modules", "describe_build"]

#: Import names, each of one file.
COMPILED_MODULES: Final = (
    "twistmq.broker.request.send_record",
    "twistmq.broker.observe.statistics",
    "twistmq.broker.store.append_fast_path",
    "twistmq.broker.store.batch_queue",
    "twistmq.broker.store.consume_queue",
    "twistmq.broker.store.recovery_fast_path",
    "twistmq.broker.store.extension_fast_path",
    "twistmq.broker.store.extension_reader",
    "twistmq.broker.store.extension_unit",
    "twistmq.broker.store.index_tail",
    "twistmq.broker.store.read_fast_path",
    "twistmq.broker.wire.batch",
    "twistmq.broker.wire.binary_header",
    "twistmq.broker.wire.frame",
    "twistmq.broker.wire.field_sets",
    "twistmq.broker.wire.json_text",
    "twistmq.broker.wire.lazy_properties",
    "twistmq.broker.wire.message_id",
    "twistmq.broker.wire.one_pass",
    "twistmq.broker.wire.properties",
    "twistmq.broker.wire.record",
    "twistmq.broker.wire.request_reader",
    "twistmq.broker.wire.signature",
    "twistmq.plugins.filter_sql92.bitmap_fast_path",
    "twistmq.plugins.filter_sql92.evaluators",
    "twistmq.plugins.filter_sql92.match_cache",
    "twistmq.plugins.filter_sql92.values",
    "twistmq.trace.pages",
    "twistmq.trace.records",
    "twistmq.transaction.half",
    "twistmq.transaction.recent",
)

#: How mypyc looks at types. Not setup.cfg's mypy table: its plugin and its warnings are for
#: development. pip builds where the dependencies are not installed, and what the modules above
#: import does not pass the type checker there: only their own errors count.
TYPE_FLAGS: Final = (
    "--config-file=", "--namespace-packages", "--explicit-package-bases",
    "--ignore-missing-imports", "--follow-imports=silent",
)


def compiled_modules() -> list[str]:
    """The modules that an import of theirs would load as extensions."""
    return [name for name in COMPILED_MODULES if _is_compiled(name)]


def describe_build() -> str:
    """What ``twistmq --version`` says of this installation."""
    compiled = len(compiled_modules())
    if not compiled:
        return "pure Python"
    return f"compiled: {compiled} of {len(COMPILED_MODULES)} modules"


def _is_compiled(name: str) -> bool:
    spec = find_spec(name)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))
