"""Keep the options of each command of mqadmin, as its own classes declare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.interop.clients import HERE, java_classes, run
from tests.interop.gallery import Gallery
from tests.interop.peer import class_path, java_command

__all__ = ["OPTION_VERSIONS", "capture_options"]

OPTION_VERSIONS: Final = ("5.3.3", "4.9.4")
_SECONDS: Final = 60.0


def capture_options(folder: Path, first_port: int) -> None:
    """Write tests/golden/mqadmin-options; ``folder`` is for Java's home."""
    gallery = Gallery("mqadmin-options", __doc__ or "")
    for version in OPTION_VERSIONS:
        classes = java_classes(version, HERE / "mqadmin_java", main="OptionLists")
        java = java_command(folder / version, [str(classes), class_path(version)])
        commands: dict[str, list[list[str]]] = {}
        for line in run([*java, "OptionLists"], _SECONDS).splitlines():
            name, *option = line.split("\t")
            if option:
                commands[name].append(option)
            else:
                commands[name] = []
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(options)}"
                          for name, options in sorted(commands.items()))
        gallery.add(f"{version}.json", f"{{{rows}}}\n".encode(),
                    f"of {version}: command to options: short name, long name, value or flag, "
                    "needed or not")
    gallery.close()
