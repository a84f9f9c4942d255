"""Compiles the hot modules where it can; everything else about the package is in setup.cfg.

The modules named in ``broker/compiled.py`` are translated by mypyc. They are taken from a staged
copy of the tree, ``<build>/stage/twistmq/broker/...``: compiled where they lie, they would be
installed as a top-level ``broker.wire.x`` that nothing imports. Whatever fails on the way (no
mypyc, no C compiler, a type error), the package is installed as plain Python and one line says
why. ``TWISTMQ_PURE=1`` skips compiling.

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
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
#: Folder X is imported as twistmq.X.
FOLDERS = ("broker", "client", "plugins", "acl", "spark_bridge", "trace", "transaction")
#: Commands of the build back end that only describe the package.
DESCRIBING = {"dist_info", "egg_info", "sdist"}


def say(line: str) -> None:
    print(f"twistmq: {line}", file=sys.stderr)


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
    try:
        from mypyc.build import mypycify

        extensions = mypycify([*flags, *files], opt_level="3", group_name="twistmq",
                              target_dir=str(build / "c"))
    except (Exception, SystemExit) as reason:  # mypycify ends the process when a type is wrong
        say(f"installed as plain Python: mypyc cannot translate ({reason!r})")
        return []
    for extension in extensions:
        extension.optional = True
        # The compiler takes a quarter longer with what a debugger needs.
        extension.extra_compile_args = [*extension.extra_compile_args, "-g0"]
    return list(extensions)


class BuildAllOrNone(build_ext):
    """Builds the extensions; when one fails, none is kept: they need each other."""

    def finalize_options(self) -> None:
        super().finalize_options()
        # One file has nearly all of the code; those that name the modules are compiled beside it.
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        super().build_extensions()
        paths = [Path(self.get_ext_fullpath(extension.name)) for extension in self.extensions]
        missing = [path.name for path in paths if not path.exists()]
        for path in paths if missing else []:
            path.unlink(missing_ok=True)
        if missing:
            say(f"installed as plain Python: the C compiler made none of {len(missing)} extensions"
                if len(missing) == len(paths) else
                f"installed as plain Python: the C compiler failed on {', '.join(missing)}")
        elif paths:
            say(f"compiled {len(paths) - 1} modules")


def main() -> None:
    if DESCRIBING.intersection(sys.argv[1:2]):
        setup()
        return
    build = Path(tempfile.mkdtemp(prefix="twistmq-build-"))
    atexit.register(shutil.rmtree, build, ignore_errors=True)
    with contextlib.chdir(ROOT):
        setup(ext_modules=translated(build), cmdclass={"build_ext": BuildAllOrNone},
              options={"build": {"build_base": str(build)}})


main()
