"""Compiles the core of a group and its simulation, for runs of very many seeds.

    with TemporaryDirectory() as folder:
        compile_core(Path(folder))
        status = run_compiled(Path(folder), "tests.long.dledger_core", ["--seeds", "100000"])

The folder gets copies of ``twistmq/raft`` and ``tests``, and mypyc translates most of their modules
there. The modules of messages, events and actions stay as they are: their classes are Structs.
Compiled classes cannot be changed, so a run with planted bugs is never a compiled one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from twistmq.broker.compiled import TYPE_FLAGS

__all__ = ["MODULES", "CompilationFailed", "compile_core", "run_compiled"]

_ROOT: Final = Path(__file__).resolve().parents[2]
#: The modules that are compiled, by their folders.
MODULES: Final = {
    "twistmq/raft": (
        "admission", "ballot", "calls", "commit", "durability", "election", "follower",
        "lead_takeover", "lead_transfer", "leader", "member", "member_state", "outbox",
        "parked_pushes", "pusher", "vote_round", "voter"),
    "tests/history": ("check",),
    "tests/raft/simulation": (
        "clients", "disk", "faults", "ghosts", "java_machine", "machine", "simulation", "world"),
}


class CompilationFailed(Exception):
    """The modules cannot be compiled: there is no mypyc or no C compiler, or a type is wrong."""


def compile_core(folder: Path) -> None:
    """Copy the sources to a folder, and compile there.

    :raises CompilationFailed: with what mypyc and the compiler wrote.
    """
    only_sources = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(_ROOT / "raft", folder / "twistmq/raft", ignore=only_sources)
    for name in ("history", "long", "raft"):
        shutil.copytree(_ROOT / "tests" / name, folder / "tests" / name, ignore=only_sources)
    for source in (_ROOT / "tests").glob("*.py"):
        shutil.copy(source, folder / "tests")
    files = [f"{place}/{name}.py" for place, names in MODULES.items() for name in names]
    for file in files:
        # A compiled class always has slots, and mypyc cannot apply the decorator's own.
        source = folder / file
        source.write_text(re.sub(r"(, )?slots=True", "", source.read_text()))
    built = subprocess.run(
        [sys.executable, "-m", "mypyc", *TYPE_FLAGS, *files], cwd=folder, env=_environment(folder),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if built.returncode:
        raise CompilationFailed(built.stdout)
    for file in files:
        if not list(folder.glob(f"{file.removesuffix('.py')}.*.so")):
            raise CompilationFailed(f"{file} was not compiled: {built.stdout}")


def run_compiled(folder: Path, module: str, arguments: Sequence[str], *, quiet: bool = False
                 ) -> subprocess.CompletedProcess[str]:
    """Run a module as a command with the compiled modules of a folder.

    :param quiet: whether its output is returned instead of printed.
    """
    return subprocess.run([sys.executable, "-m", module, *arguments], cwd=folder, text=True,
                          env=_environment(folder), stdout=subprocess.PIPE if quiet else None)


def _environment(folder: Path) -> dict[str, str]:
    # A higher level of optimization takes the compiler much longer, for little.
    return {**os.environ, "PYTHONPATH": str(folder), "MYPYPATH": str(folder),
            "MYPYC_OPT_LEVEL": "1"}
