"""The list of modules that are compiled at installation, and checks of the result.

If a C compiler is available, the installation turns the modules below into extensions with mypyc.
Otherwise the same sources run as Python. To compile another module, add a line for it. A module can
be compiled if it is fully typed, if none of its classes inherits from a class of Twisted or msgspec
or is the base of a class that is not compiled, and if no other module needs to replace its names.
``setup.py`` runs this file by its path before anything is installed, so this file may import only
the standard library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = [
    "COMPILED_MODULES",
    "TYPE_FLAGS",
    "build_warning",
    "compiled_modules",
    "describe_build",
    "stale_modules",
]

#: Import names; each one stands for a single file.
COMPILED_MODULES: Final = (
    "twistmq.acl.leading_sends",
    "twistmq.broker.remoting.request",
    "twistmq.broker.remoting.request_runs",
    "twistmq.broker.request.pull",
    "twistmq.broker.request.send_record",
    "twistmq.broker.request.sent_topics",
    "twistmq.broker.observe.statistics",
    "twistmq.broker.store.append_fast_path",
    "twistmq.broker.store.batch_queue",
    "twistmq.broker.store.consume_queue",
    "twistmq.broker.store.entry_heads",
    "twistmq.broker.store.recovery_fast_path",
    "twistmq.broker.store.extension_fast_path",
    "twistmq.broker.store.extension_reader",
    "twistmq.broker.store.extension_unit",
    "twistmq.broker.store.get_message",
    "twistmq.broker.store.index_tail",
    "twistmq.broker.store.queue_reader",
    "twistmq.broker.store.raw_walk",
    "twistmq.broker.store.read_fast_path",
    "twistmq.broker.store.stored_records",
    "twistmq.protocol.batch",
    "twistmq.protocol.big_endian",
    "twistmq.protocol.binary_header",
    "twistmq.protocol.frame",
    "twistmq.protocol.field_sets",
    "twistmq.protocol.json_text",
    "twistmq.protocol.lazy_properties",
    "twistmq.protocol.one_pass",
    "twistmq.protocol.plain_properties",
    "twistmq.protocol.plain_record",
    "twistmq.protocol.properties",
    "twistmq.protocol.record",
    "twistmq.protocol.request_reader",
    "twistmq.client.core.consumer.fetcher",
    "twistmq.client.core.consumer.flow_control",
    "twistmq.client.core.consumer.message_intake",
    "twistmq.client.core.consumer.pull_gate",
    "twistmq.client.core.pop.popped_message",
    "twistmq.client.core.consumer.pull_request",
    "twistmq.client.core.consumer.stats",
    "twistmq.client.core.connection.tasks",
    "twistmq.client.core.consumer.window",
    "twistmq.client.base.received_message",
    "twistmq.plugins.filter_sql92.bitmap_fast_path",
    "twistmq.plugins.filter_sql92.evaluators",
    "twistmq.plugins.filter_sql92.match_cache",
    "twistmq.plugins.filter_sql92.values",
    "twistmq.trace.pages",
    "twistmq.protocol.trace_records",
    "twistmq.transaction.half_message",
)

#: The type-checker options for mypyc. The mypy table in setup.cfg is not used, because its plugin
#: and its warnings are meant for development. pip builds the package without its dependencies, so
#: imported modules that are not in the list above cannot be checked; only errors in the listed
#: modules count.
TYPE_FLAGS: Final = (
    "--config-file=", "--namespace-packages", "--explicit-package-bases",
    "--ignore-missing-imports", "--follow-imports=silent",
)


def compiled_modules() -> list[str]:
    """Return the modules that an import loads as compiled extensions."""
    return [name for name in COMPILED_MODULES if _is_compiled(name)]


def stale_modules(extensions: Mapping[str, Path] | None = None) -> list[str]:
    """Return the modules whose source is newer than the extension that an import would load.

    Only an editable installation can have such modules: its sources change, but its extensions stay
    the same until the next installation.

    :param extensions: the path of each module's extension; None stands for the extensions of this
        installation, if it is editable.
    """
    if extensions is None:
        extensions = {name: path for name in COMPILED_MODULES
                      if (path := _extension(name)) is not None} if _is_editable() else {}
    return [name for name, path in extensions.items() if _is_older(path)]


def describe_build() -> str:
    """Describe the build of this installation, for ``twistmq --version``."""
    compiled = len(compiled_modules())
    if not compiled:
        return "pure Python"
    return f"compiled: {compiled} of {len(COMPILED_MODULES)} modules"


def build_warning() -> str:
    """Return a warning if the compiled modules do not match the sources; "" if they match.

    If only some of the modules are compiled, the missing ones no longer compile.
    """
    if not _is_editable():
        return ""
    stale = stale_modules()
    missing = sorted(set(COMPILED_MODULES).difference(compiled_modules()))
    parts = []
    if stale:
        parts.append(f"older than their sources: {', '.join(stale)}")
    if missing and len(missing) < len(COMPILED_MODULES):
        parts.append(f"not compiled: {', '.join(missing)}")
    if not parts:
        return ""
    return (f"compiled modules are out of date ({'; '.join(parts)}): install again, or with "
            "TWISTMQ_PURE=1 for development")


def _is_compiled(name: str) -> bool:
    return _extension(name) is not None


def _extension(name: str) -> Path | None:
    """Return the extension that an import of a module would load; None if it loads the source."""
    spec = find_spec(name)
    if spec is None or not (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES)):
        return None
    return Path(spec.origin or "")


def _is_older(extension: Path) -> bool:
    source = extension.with_name(extension.name.split(".")[0] + ".py")
    return source.exists() and extension.stat().st_mtime < source.stat().st_mtime


def _is_editable() -> bool:
    try:
        text = distribution("twistmq").read_text("direct_url.json")
    except PackageNotFoundError:
        return False
    return bool(json.loads(text or "{}").get("dir_info", {}).get("editable"))
