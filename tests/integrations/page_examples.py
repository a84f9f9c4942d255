"""The examples and the options on the pages of the integrations of task queues."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["option_rows", "run_test_of_page", "write_examples"]


def write_examples(page: str, folder: Path, name_server: str) -> None:
    """Write the examples of a page to a new folder, in files with their names.

    :param name_server: replaces the address of the name server in the examples.
    """
    folder.mkdir()
    for name, code in re.findall(r"<!-- example: (\S+) -->\n```python\n(.*?)```", page, re.DOTALL):
        (folder / name).write_text(code.replace("127.0.0.1:9876", name_server))


def run_test_of_page(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the example ``test_shop.py`` with pytest and without the settings of this project."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
         "--rootdir", str(folder), str(folder / "test_shop.py")],
        cwd=folder, capture_output=True, text=True, timeout=120)


def option_rows(page: str) -> dict[str, str]:
    """Return the default of each option in the section of a page, by name."""
    section = page.partition("## Options")[2]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE))
