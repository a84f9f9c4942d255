"""Compiles the hot modules where it can; everything else about the package is in setup.cfg.

The modules named in ``broker/compiled.py`` are translated by mypyc. They are taken from a staged
copy of the tree, ``<build>/stage/twistmq/broker/...``: compiled where they lie, they would be
installed as a top-level ``protocol.x`` that nothing imports. Whatever fails on the way (no
mypyc, no C compiler, a type error), the package is installed as plain Python and one line says
why. ``TWISTMQ_PURE=1`` skips compiling.

mypyc writes a C file for each module, and all of them include the same long headers. The compiler
is given eight files that include a share of them each: one file would keep a single processor busy,
and seventy would have the headers read seventy times.

The build directory is a temporary one, so that nothing of an earlier build is shipped, and two
installations from one checkout do not meet.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent
#: Folder X is imported as twistmq.X.
FOLDERS = ("protocol", "broker", "client", "tools", "plugins", "acl", "spark_bridge", "trace",
           "transaction", "integrations", "raft", "console")
#: Commands of the build back end that only describe the package.
DESCRIBING = {"dist_info", "egg_info", "sdist"}
#: How many C files the compiler is given for the code of all modules.
PARTS = 8
#: The compiler's optimization level.
OPTIMIZE = "1"


def say(line: str) -> None:
    print(f"twistmq: {line}", file=sys.stderr)


def announce(line: str) -> None:
    """Say a line that the user also sees at a terminal: pip keeps what a build prints to itself.

    A process in the background does not write to the terminal.
    """
    say(line)
    with contextlib.suppress(OSError, AttributeError), open("/dev/tty", "w") as terminal:
        if not sys.stderr.isatty() and os.tcgetpgrp(terminal.fileno()) == os.getpgrp():
            print(f"twistmq: {line}", file=terminal)


def staged_tree(build: Path) -> Path:
    stage = build / "stage"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, stage / "twistmq" / folder,
                        ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return stage


def translated(build: Path) -> list[Extension]:
    """The hot modules as C extensions; none, with a line that says why, when that fails."""
    if os.environ.get("TWISTMQ_PURE", "") not in ("", "0"):
        say("TWISTMQ_PURE is set, nothing is compiled")
        return []
    build_list = runpy.run_path(str(ROOT / "broker/compiled.py"))
    names: tuple[str, ...] = build_list["COMPILED_MODULES"]
    stage = staged_tree(build)
    files = [str(stage / (name.replace(".", "/") + ".py")) for name in names]
    os.environ["MYPYPATH"] = str(stage)
    flags = [*build_list["TYPE_FLAGS"], f"--cache-dir={build / 'mypy_cache'}"]
    announce(f"compiling {len(names)} modules, which takes half a minute or more on two cores, and "
             "up to a minute on slow ones; TWISTMQ_PURE=1 skips it")
    try:
        from mypyc.build import mypycify

        library, *shims = mypycify(
            [*flags, *files], opt_level=OPTIMIZE, group_name="twistmq", multi_file=True,
            target_dir=str(build / "c"))
    except (Exception, SystemExit) as reason:  # mypycify ends the process when a type is wrong
        say(f"installed as plain Python: mypyc cannot translate ({reason!r})")
        return []
    library.sources = [joined(build / f"c/part_{number}.c", files)
                       for number, files in enumerate(shares(library.sources, PARTS))]
    join_shims(shims, build)
    for extension in (library, *shims):
        extension.optional = True
        # The compiler takes a quarter longer with what a debugger needs.
        extension.extra_compile_args = [*extension.extra_compile_args, "-g0"]
    return [library, *shims]


def shares(files: Iterable[str], count: int) -> list[list[str]]:
    """Divide files into so many lists of about as many bytes."""
    lists: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for file in sorted(files, key=lambda file: (-os.path.getsize(file), file)):
        least = sizes.index(min(sizes))
        lists[least].append(file)
        sizes[least] += os.path.getsize(file)
    return [each for each in lists if each]


def joined(path: Path, files: Iterable[str]) -> str:
    """Write a C file that includes others; :returns: its path."""
    path.write_text("".join(f'#include "{os.path.abspath(file)}"\n' for file in files))
    return str(path)


def join_shims(shims: Sequence[Extension], build: Path) -> None:
    """Compile the shims of all modules as one file, which each of them is linked from.

    A shim is the little library that Python loads for one module. It has a function that is named
    after the last part of the module's name, so modules with the same last part are kept apart.
    """
    groups: list[dict[str, Extension]] = []
    for shim in shims:
        stem = shim.name.rpartition(".")[2]
        group = next((each for each in groups if stem not in each), None)
        if group is None:
            groups.append(group := {})
        group[stem] = shim
    for number, group in enumerate(groups):
        path = build / f"c/shims_{number}.c"
        # Each file defines this name too, which only matters on Windows.
        path.write_text("".join(
            f"#define PyInit___init__ PyInit___init___{stem}\n"
            f'#include "{os.path.abspath(shim.sources[0])}"\n#undef PyInit___init__\n'
            for stem, shim in group.items()))
        for shim in group.values():
            shim.sources = [str(path)]


class BuildAllOrNone(build_ext):
    """Builds the extensions; when one fails, none is kept: they need each other."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        try:
            self.compile_sources()
        except (BaseError, CCompilerError) as reason:
            say(f"installed as plain Python: the C compiler failed ({reason})")
            self.extensions = []
            return
        super().build_extensions()
        paths = [Path(self.get_ext_fullpath(extension.name)) for extension in self.extensions]
        missing = [path.name for path in paths if not path.exists()]
        for path in paths if missing else []:
            path.unlink(missing_ok=True)
        if missing:
            say(f"installed as plain Python: {len(missing)} of {len(paths)} extensions were not "
                f"linked, the first of them {missing[0]}")
        elif paths:
            say(f"compiled {len(paths) - 1} modules")

    def compile_sources(self) -> None:
        """Compile the files of all extensions, each once and side by side.

        The extensions are linked from the objects afterwards.

        :raises BaseError: when the compiler fails; so does ``CCompilerError``.
        """
        wanted = {source: extension for extension in self.extensions
                  for source in extension.sources}

        def compiled(source: str) -> list[str]:
            extension = wanted[source]
            made: list[str] = self.compiler.compile(
                [source], output_dir=self.build_temp, include_dirs=extension.include_dirs,
                extra_postargs=extension.extra_compile_args)
            return made

        with ThreadPoolExecutor(self.parallel) as pool:
            objects = dict(zip(wanted, pool.map(compiled, wanted), strict=True))
        for extension in self.extensions:
            extension.extra_objects = [each for source in extension.sources
                                       for each in objects[source]]
            extension.sources = []


def main() -> None:
    if DESCRIBING.intersection(sys.argv[1:2]):
        setup()
        return
    build = Path(tempfile.mkdtemp(prefix="twistmq-build-"))
    atexit.register(shutil.rmtree, build, ignore_errors=True)
    with contextlib.chdir(ROOT):
        setup(ext_modules=translated(build), cmdclass={"build_ext": BuildAllOrNone},
              options={"build": {"build_base": str(build)}})


if __name__ == "__main__":
    main()
