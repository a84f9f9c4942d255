"""The rules for every test under pytest: its own folder, and its ring.

trial's ``mktemp`` makes its folders in the working directory; trial itself moves to
``_trial_temp`` for that, pytest stays where it was started.
"""

from __future__ import annotations

import gc
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import _pytest.unittest
import pytest

from tests import time_limit
from tests.draw import WHOLE
from tests.interop.kept import end_others
from tests.rings import (
    RINGS,
    SLOW,
    SLOWEST_FIRST,
    draw_half,
    is_wanted,
    ring_of,
    share_of,
)

_TESTS = Path(__file__).parent
_LEFT_OUT = pytest.StashKey[Counter[str]]()
#: The files that this run does not draw. Workers of xdist inherit the variable.
_NOT_DRAWN = "TWISTMQ_NOT_DRAWN"
_TEST = re.compile(r"^\s+(?:async )?def (test_\w+)", re.MULTILINE)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _same_log_levels() -> Iterator[None]:
    """Restore the levels of loggers, because later tests read the log of this process.

    Commands set them, and so do the workers of Celery.
    """
    loggers = [logging.getLogger(name) for name in ("", "twistmq", "twistmq.client")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    for ring, text in {**RINGS, "fast": "the quick tests of the ring unit"}.items():
        config.addinivalue_line("markers", f"{ring}: {text}")
    config.stash[_LEFT_OUT] = Counter()
    if not hasattr(config, "workerinput"):
        os.environ[_NOT_DRAWN] = (
            "" if WHOLE or not config.option.markexpr else " ".join(sorted(draw_half())))
    # Outside of what collects the output of tests: it is lost where the process has to end.
    time_limit.report_to(os.fdopen(os.dup(2), "w"))
    # pytest looks up Twisted's version before each test: a third of the time of a small one.
    version = getattr(_pytest.unittest, "_get_twisted_version", None)
    if version is not None:
        _pytest.unittest._get_twisted_version = cache(version)
    if config.pluginmanager.hasplugin("xdist"):
        # Else xdist begins with the files that have the most tests, which are quick ones.
        config.option.loadscopereorder = False
        config.pluginmanager.register(_FromWorkers(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, let one worker run the files that share something, too."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByShare(LoadFileScheduling):
        """Gives each worker the tests of a file, or of the files that share something."""

        def _split_scope(self, nodeid: str) -> str:
            file = config.rootpath / nodeid.partition("::")[0]
            return share_of(file.relative_to(_TESTS).as_posix())

    return ByShare(config, log)


def _limit_s(item: pytest.Item) -> float:
    module = ".".join(("tests", *Path(_file(item)).with_suffix("").parts))
    return time_limit.limit_of(module, item.name, getattr(item.cls, "timeout", None)
                               if isinstance(item, pytest.Function) else None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Limit ``setUpClass`` and the start of shared servers as well."""
    with time_limit.limited(f"the set-up of {item.nodeid}", _limit_s(item)):
        yield


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the servers that a module's tests share after the last of them."""
    if nextitem is None or nextitem.path != item.path:
        end_others("")


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).as_posix()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file of another ring before it is imported, and count its tests by name."""
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    file = collection_path.relative_to(_TESTS).as_posix()
    if is_wanted(file, config.option.markexpr) and file not in os.environ[_NOT_DRAWN].split():
        return None
    config.stash[_LEFT_OUT].update(
        ring_of(file, name) for name in _TEST.findall(collection_path.read_text()))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage among the thousands of tests, neither now nor while they run."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its ring, and begin with the files that take minutes."""
    rank = {file: place for place, file in enumerate(SLOWEST_FIRST)}
    for item in items:
        ring = ring_of(_file(item), item.name.partition("[")[0])
        item.add_marker(ring)
        if ring == "unit" and _file(item) not in SLOW:
            item.add_marker("fast")
    items.sort(key=lambda item: rank.get(_file(item), len(rank)))


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the tests that are left out, by ring."""
    for item in items:
        ring = next(mark.name for mark in item.iter_markers() if mark.name in RINGS)
        item.config.stash[_LEFT_OUT][ring] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the count from a worker of xdist to the process that prints."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(session.config.stash[_LEFT_OUT])


class _FromWorkers:
    """Collects the count of one worker; each worker collects all tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_testnodedown(self, node: object) -> None:
        output = getattr(node, "workeroutput", {})
        self._config.stash[_LEFT_OUT] = Counter(output.get("left_out", {}))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Report the tests that were left out, and how to run them."""
    left_out = config.stash[_LEFT_OUT]
    if left_out:
        terminalreporter.section("left out")
        for ring, count in left_out.items():
            terminalreporter.line(f"{count:5} of {ring}: {RINGS[ring]} (pytest -m {ring})")
    not_drawn = [file for file in os.environ[_NOT_DRAWN].split()
                 if is_wanted(file, config.option.markexpr)]
    if not_drawn:
        terminalreporter.line("not drawn this time (TWISTMQ_TESTS=whole draws every file): "
                              + " ".join(not_drawn))
