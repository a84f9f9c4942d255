"""The division of the C compiler's work in setup.py, which succeeds or fails as a whole."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

from setuptools import Distribution, Extension
from twisted.trial.unittest import SkipTest, SynchronousTestCase

#: The names of setup.py, which is not imported: it is run, and not as a program.
SETUP = SimpleNamespace(**runpy.run_path(str(Path(__file__).resolve().parents[1] / "setup.py")))
#: A module of Python in C; its name is filled in.
SOURCE = """#include <Python.h>
static struct PyModuleDef {0} = {{PyModuleDef_HEAD_INIT, "{0}", NULL, 0, NULL}};
PyMODINIT_FUNC PyInit_{0}(void) {{ return PyModule_Create(&{0}); }}
PyMODINIT_FUNC PyInit___init__(void) {{ return PyInit_{0}(); }}
"""


class PartsTests(SynchronousTestCase):
    """The files that the compiler gets."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        (self.folder / "c").mkdir(parents=True)

    def file(self, name: str, size: int) -> str:
        """Create a file of a size; :returns: its path."""
        path = self.folder / name
        path.write_text("x" * size)
        return str(path)

    def test_the_shares_have_about_as_many_bytes(self) -> None:
        """The largest file is alone, and each file is in one share."""
        files = [self.file(f"{size}.c", size) for size in (10, 20, 30, 40, 100)]
        found = SETUP.shares(files, 2)
        self.assertEqual([sum(Path(each).stat().st_size for each in share) for share in found],
                         [100, 100])
        self.assertEqual(sorted(each for share in found for each in share), sorted(files))

    def test_there_are_no_empty_shares(self) -> None:
        """An empty file would be compiled for nothing."""
        self.assertEqual(len(SETUP.shares([self.file("one.c", 1)], 8)), 1)

    def test_shims_of_one_name_are_in_two_files(self) -> None:
        """Both define a function of that name, so one file with both would be invalid C."""
        shims = [Extension(name, [f"{name}.c"]) for name in ("a.record", "a.batch", "b.record")]
        SETUP.join_shims(shims, self.folder)
        self.assertEqual([Path(shim.sources[0]).name for shim in shims],
                         ["shims_0.c", "shims_0.c", "shims_1.c"])


class BuildTests(SynchronousTestCase):
    """Either all extensions are built or none."""

    def setUp(self) -> None:
        if shutil.which("cc") is None:
            raise SkipTest("no C compiler")
        self.folder = Path(self.mktemp()).absolute()
        (self.folder / "c").mkdir(parents=True)

    def build(self, *more: Extension) -> list[str]:
        """Build two modules and the given ones; :returns: the names of the built ones."""
        shims = [self.extension(name, SOURCE.format(name)) for name in ("one", "other")]
        SETUP.join_shims(shims, self.folder)
        command = SETUP.BuildAllOrNone(Distribution({"ext_modules": [*shims, *more]}))
        command.build_lib = str(self.folder / "lib")
        command.build_temp = str(self.folder / "temp")
        command.ensure_finalized()
        command.run()
        return sorted(path.name.partition(".")[0] for path in self.folder.glob("lib/*"))

    def extension(self, name: str, text: str) -> Extension:
        """Return an extension of one file."""
        path = self.folder / f"{name}.c"
        path.write_text(text)
        return Extension(name, [str(path)], optional=True)

    def test_modules_are_linked_from_one_object(self) -> None:
        """The file of the shims is compiled once, and each module is found in it."""
        self.assertEqual(self.build(), ["one", "other"])
        self.assertEqual(len(list(self.folder.glob("temp/**/*.o"))), 1)

    def test_a_file_that_does_not_compile_leaves_nothing(self) -> None:
        """Modules call each other without Python: one without the others would not run."""
        self.assertEqual(self.build(self.extension("bad", "this is not C")), [])

    def test_a_module_that_cannot_be_linked_leaves_nothing(self) -> None:
        """A linker that fails counts as a compiler that fails."""
        bad = self.extension("bad", SOURCE.format("bad"))
        bad.libraries = ["a-library-that-is-not-there"]
        self.assertEqual(self.build(bad), [])
