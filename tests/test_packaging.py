"""The layout on which packaging relies: its errors are silent, so each rule is a test.

Source: the packaging trials this project's layout comes from; setup.cfg.
"""

from __future__ import annotations

import ast
import configparser
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from twistmq.broker.compiled import COMPILED_MODULES, TYPE_FLAGS

ROOT = Path(__file__).resolve().parents[1]
#: Folder X is imported as twistmq.X; protocol, broker and client have an __init__.py each.
FOLDERS = [folder for folder in (
    "protocol", "broker", "client", "tools", "plugins", "acl", "transaction", "trace",
    "spark_bridge", "integrations", "raft", "console")
    if (ROOT / folder).is_dir()]
#: Top-level packages by which Spark finds its formats, each a folder of spark_bridge/formats.
FORMATS = sorted(path.parent.name for path in ROOT.glob("spark_bridge/formats/*/__init__.py"))
#: What has no place where bytes and tables are worked on.
EDGE_MODULES = ("twisted.internet", "asyncio", "os", "random", "select", "selectors", "socket",
                "threading", "time")
#: Modules of the broker whose names plugins may use.
PUBLIC = {"twistmq.broker.api", "twistmq.broker.testing", *(
    f"twistmq.broker.api.{path.stem}" for path in (ROOT / "broker/api").glob("[a-z]*.py"))}
#: Modules of the client's core that ask which process this is: ids of a child are its own.
CORE_WITH_IDENTITY = {"unique_id.py"}
#: Modules of the store that are more than formats.
STORE_WITH_IO = {"checkpoint_file.py", "disk.py", "file_warmer.py", "files.py", "message_store.py",
                 "regular_file.py"}


def setup_cfg() -> configparser.ConfigParser:
    """Return the content of setup.cfg."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    return config


def sources(*folders: str) -> Iterator[Path]:
    """Every Python file below these folders of the checkout."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def imports(path: Path, *, at_run_time: bool = False) -> set[str]:
    """Return the absolute modules that a file imports, with the names that it takes from them.

    :param at_run_time: without those that only the type checker sees.
    """
    found = set()
    nodes = list(ast.walk(ast.parse(path.read_text())))
    typing_only = {
        id(node) for block in (nodes if at_run_time else ())
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in nodes:
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def is_mapped_alone(path: Path) -> bool:
    """Whether a file is installed elsewhere than its folder: the drop-in, Spark's formats."""
    return "dropin" in path.parts or "formats" in path.parts


def within(name: str, modules: tuple[str, ...]) -> bool:
    """Whether a name is one of the modules or in one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


class LayoutTests(SynchronousTestCase):
    """The folders and setup.cfg."""

    def test_mapped_folders_have_no_init(self) -> None:
        """Otherwise ``import trace`` in the checkout would find our folder."""
        found = [folder for folder in FOLDERS if (ROOT / folder / "__init__.py").exists()]
        self.assertEqual(found, ["protocol", "broker", "client"])

    def test_mapped_folders_are_typed(self) -> None:
        """Otherwise the mypy of a plugin would see no types."""
        missing = [folder for folder in FOLDERS if not (ROOT / folder / "py.typed").exists()]
        self.assertEqual(missing, [])

    def test_packages_are_the_folders_with_modules(self) -> None:
        """A folder that is not listed imports in a checkout and is missing from the wheel."""
        listed = setup_cfg()["options"]["packages"].split()
        # A folder that only holds other folders is a package too: its py.typed has to be installed.
        holding = {path.parent.relative_to(ROOT) for path in sources(*FOLDERS)
                   if not is_mapped_alone(path)} | {Path(folder) for folder in FOLDERS}
        self.assertEqual(
            sorted(listed),
            sorted(["twisted.plugins", *FORMATS,
                    *("twistmq." + ".".join(p.parts) for p in holding)]))

    def test_package_dir(self) -> None:
        """Each mapped folder has its line, and no other folder has one."""
        lines = setup_cfg()["options"]["package_dir"].strip().splitlines()
        mapped = {left.strip(): right.strip()
                  for left, _, right in (line.partition("=") for line in lines)}
        self.assertEqual(mapped, {"twisted.plugins": "broker/dropin/twisted/plugins",
                                  **{name: f"spark_bridge/formats/{name}" for name in FORMATS},
                                  **{f"twistmq.{folder}": folder for folder in FOLDERS}})

    def test_lower_bounds_are_those_that_are_tried(self) -> None:
        """The versions CI tries are the lower bounds, pins and tools for the checkout aside."""
        config = setup_cfg()
        extras = config["options.extras_require"]
        lines = [line for text in (config["options"]["install_requires"], extras["arrow"],
                                   extras["celery"], extras["compression"], extras["console"],
                                   extras["dramatiq"], extras["opentelemetry"],
                                   extras["otlp"], extras["taskiq"], extras["tls"],
                                   extras["test"])
                 for line in text.splitlines()]
        bounds = {line.replace(">=", "==") for line in lines if ">=" in line}
        tried = {line for line in (ROOT / ".ci/oldest.txt").read_text().splitlines()
                 if line and not line.startswith("#")}
        self.assertEqual({line for line in bounds if not line.startswith("ruff")}, tried)

    def test_sub_packages_have_an_init(self) -> None:
        """Below a mapped folder, each folder with modules is a regular package."""
        missing = {str(path.parent) for path in sources(*FOLDERS)
                   if path.parent.parent != ROOT and not is_mapped_alone(path)
                   and not (path.parent / "__init__.py").exists()}
        self.assertEqual(missing, set())

    def test_trial_finds_every_test(self) -> None:
        """Below tests, each folder on the way to a test is a package: trial enters no other."""
        missing = {str(folder) for path in (ROOT / "tests").rglob("test_*.py")
                   for folder in path.parents
                   if folder.is_relative_to(ROOT / "tests")
                   and not (folder / "__init__.py").exists()}
        self.assertEqual(missing, set())

    def test_no_test_needs_what_trial_does_not_call(self) -> None:
        """Fixtures of a class or a module run under pytest only: trial skips them in silence."""
        names = {"setUpClass", "tearDownClass", "setUpModule", "tearDownModule"}
        wrong = [(str(path.relative_to(ROOT)), node.name) for path in sources("tests")
                 for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.FunctionDef) and node.name in names]
        self.assertEqual(wrong, [])

    def test_mypy_sees_every_folder(self) -> None:
        """The packages mypy checks are the mapped folders."""
        checked = [name.strip() for name in setup_cfg()["mypy"]["packages"].split(",")]
        self.assertEqual(checked, [f"twistmq.{folder}" for folder in FOLDERS])

    def test_compiled_modules_exist(self) -> None:
        """Each module to compile is a file of the checkout."""
        missing = [name for name in COMPILED_MODULES
                   if not (ROOT / f"{name.removeprefix('twistmq.').replace('.', '/')}.py").exists()]
        self.assertEqual(missing, [])

    def test_compiled_modules_need_no_dependency(self) -> None:
        """pip builds without dependencies, and their types must be right there."""
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        (folder / "twistmq").mkdir(parents=True)
        for name in FOLDERS:
            (folder / "twistmq" / name).symlink_to(ROOT / name)
        files = [str(folder / f"{name.replace('.', '/')}.py") for name in COMPILED_MODULES]
        checked = subprocess.run(
            [sys.executable, "-m", "mypy", *TYPE_FLAGS, "--no-site-packages",
             f"--cache-dir={folder / 'cache'}", *files],
            cwd=folder, env={**os.environ, "MYPYPATH": str(folder)},
            capture_output=True, text=True, check=False)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""), msg=checked.stdout)


class ImportTests(SynchronousTestCase):
    """The rules of imports."""

    def test_no_import_by_folder(self) -> None:
        """``import broker`` works from the checkout, as a second copy of everything."""
        wrong = [(str(path.relative_to(ROOT)), name) for path in sources(*FOLDERS, "tests")
                 for name in imports(path) if within(name, tuple(FOLDERS))]
        self.assertEqual(wrong, [])

    def test_nothing_was_imported_by_folder(self) -> None:
        """No test got a second copy of a module either."""
        self.assertEqual([name for name in sys.modules if name.startswith("broker.")], [])

    def test_reactor_is_imported_in_tap_only(self) -> None:
        """Other modules get the reactor as an argument."""
        importing = [str(path.relative_to(ROOT)) for path in sources(*FOLDERS)
                     if any(within(name, ("twisted.internet.reactor",)) for name in imports(path))]
        self.assertEqual(importing, ["tools/tap.py"])

    def test_wire_and_store_formats_are_sans_io(self) -> None:
        """Modules of bytes and tables import no reactor, clock, socket or random source."""
        formats = [*sources("protocol"), *(path for path in sources("broker/store")
                                              if path.name not in STORE_WITH_IO)]
        # A Deferred is a value: what the store's flush answers with.
        wrong = [(str(path.relative_to(ROOT)), name) for path in formats
                 for name in imports(path, at_run_time=True) if within(name, EDGE_MODULES)
                 and not within(name, ("twisted.internet.defer",))]
        self.assertTrue(formats)
        self.assertEqual(wrong, [])

    def test_wire_brings_in_no_reactor(self) -> None:
        """An import of the whole protocol loads neither Twisted's networking nor a socket."""
        modules = [".".join(("twistmq", *path.relative_to(ROOT).with_suffix("").parts))
                   for path in sources("protocol") if path.name != "__init__.py"]
        code = (f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
                "print([name for name in sys.modules if name == 'socket' or "
                "name.startswith('twisted.internet')])")
        output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                check=True).stdout
        self.assertEqual(output.strip(), "[]")

    def test_the_core_of_the_client_is_sans_io(self) -> None:
        """The core gets bytes, times and random numbers, and imports no event loop."""
        wrong = [(str(path.relative_to(ROOT)), name) for path in sources("client/core")
                 for name in imports(path, at_run_time=True)
                 if within(name, (*EDGE_MODULES, "twisted", "pluggy", "click"))
                 and not (path.name in CORE_WITH_IDENTITY and name in ("os", "threading"))]
        self.assertEqual(wrong, [])


def module_of(path: Path) -> str:
    """Return the import name of a module of the product."""
    parts = ("twistmq", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class CycleTests(SynchronousTestCase):
    """Modules that import one another, for their types alone too."""

    #: Files that may know one another: two or three that are one thing in parts.
    CYCLE_MAX = 3

    def test_no_circle_of_imports_is_larger_than_three_files(self) -> None:
        """A reader of one module need not read ten others first."""
        graph: dict[str, set[str]] = {}
        known = {module_of(path) for path in sources(*FOLDERS)}
        for path in sources(*FOLDERS):
            found: set[str] = set()
            for name in imports(path):
                while name and name not in known:
                    name = name.rpartition(".")[0]
                found.add(name)
            graph[module_of(path)] = found - {module_of(path), ""}
        circles = [sorted(circle) for circle in components(graph) if len(circle) > self.CYCLE_MAX]
        self.assertEqual(circles, [])

    def test_components_are_found(self) -> None:
        """A circle is found completely, and a chain is not a circle."""
        graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set[str]()}
        self.assertEqual(sorted(map(sorted, components(graph))), [["a", "b", "c"], ["d"], ["e"]])


class ConstructionTests(SynchronousTestCase):
    """The parts of a broker are given all that they need when they are made."""

    #: The names under which the product keeps a broker and its parts.
    PARTS = frozenset({"broker", "kernel", "host", "tables", "providers", "store"})
    #: State that changes while a broker runs: its role.
    STATE = frozenset({"writable"})

    def test_no_attribute_of_a_part_is_set_from_outside(self) -> None:
        """A part that gets something later would lack it at first."""
        found: list[tuple[str, str]] = []
        for path in sources(*FOLDERS):
            # A plugin's "tables" are the argument of complete_topic_tables, which it fills.
            parts = self.PARTS if path.is_relative_to(ROOT / "broker") else (
                self.PARTS - {"tables"})
            for node in ast.walk(ast.parse(path.read_text())):
                targets = node.targets if isinstance(node, ast.Assign) else (
                    [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else [])
                found += [(str(path.relative_to(ROOT)), ast.unparse(target)) for target in targets
                          if isinstance(target, ast.Attribute) and target.attr not in self.STATE
                          and ast.unparse(target.value).rpartition(".")[2].lstrip("_")
                          in parts]
        self.assertEqual(found, [])


def components(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components: nodes that reach one another."""
    def reached(start: str, edges: dict[str, set[str]]) -> set[str]:
        found, left = {start}, [start]
        while left:
            left += (new := edges.get(left.pop(), set()) - found)
            found |= new
        return found

    back: dict[str, set[str]] = {}
    for node, targets in graph.items():
        for target in targets:
            back.setdefault(target, set()).add(node)
    left, result = set(graph), list[set[str]]()
    while left:
        node = left.pop()
        result.append(reached(node, graph) & reached(node, back))
        left -= result[-1]
    return result


class PublicNamesTests(SynchronousTestCase):
    """Plugins use ``twistmq.broker.api`` and no other part of the broker."""

    def others(self, folder: str) -> list[tuple[str, str]]:
        """The imports of other modules of the broker, as file and module."""
        found: list[tuple[str, str]] = []
        for path in sources(folder):
            for node in ast.walk(ast.parse(path.read_text())):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [
                    alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                found += [(str(path.relative_to(ROOT)), name) for name in modules
                          if within(name, ("twistmq.broker",)) and name not in PUBLIC]
        return found

    def test_plugins_import_what_is_public(self) -> None:
        """Stock plugins and the sample package import no other module, also in functions."""
        for folder in ("acl", "plugins", "trace", "transaction", "tests/plugin_package/src"):
            self.assertEqual(self.others(folder), [], msg=folder)

    def test_each_public_name_is_there(self) -> None:
        """Each name of ``__all__`` exists and occurs once."""
        for module in sorted(PUBLIC - {"twistmq.broker.testing"}):
            names = import_module(module).__all__
            self.assertEqual(sorted(names), sorted(set(names)), msg=module)
            self.assertEqual([name for name in names if not hasattr(import_module(module), name)],
                             [], msg=module)

    def test_no_name_is_public_twice(self) -> None:
        """Each name is in one public module, so a plugin author finds it in one place."""
        names = [name for module in PUBLIC - {"twistmq.broker.testing"}
                 for name in import_module(module).__all__]
        self.assertEqual(sorted(names), sorted(set(names)))


class InstallationTests(SynchronousTestCase):
    """The files that pip installed."""

    def setUp(self) -> None:
        """Find the files of the installation, if it has a record of them."""
        # A checkout's egg-info, found first when tests are run from there, has no RECORD.
        found = [file for known in distributions(name="twistmq") if known.read_text("RECORD")
                 for file in known.files or ()]
        self.installed = [file for file in found if ".dist-info" not in file.parts[0]]
        if not any(file.name == "compiled.py" for file in self.installed):
            raise SkipTest("twistmq was not installed with a regular pip install")

    def test_top_level_names(self) -> None:
        """Only twistmq, the drop-in, Spark's formats and mypyc's runtime have such names."""
        tops = {file.parts[0] for file in self.installed if file.parts[0] != ".."}
        self.assertEqual({top.split(".")[0] for top in tops} - {"twistmq__mypyc"},
                         {"twistmq", "twisted", *FORMATS})

    def test_every_module_is_installed(self) -> None:
        """The wheel has every module of the checkout."""
        have = {"/".join(file.parts) for file in self.installed}
        missing = [str(path) for path in (p.relative_to(ROOT) for p in sources(*FOLDERS))
                   if not is_mapped_alone(path) and f"twistmq/{path}" not in have]
        self.assertEqual(missing, [])

    def test_drop_in(self) -> None:
        """twistd finds the service by its name."""
        self.assertIn("twisted/plugins/twistmq_plugin.py",
                      {"/".join(file.parts) for file in self.installed})
