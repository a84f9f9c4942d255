"""The examples and the options on the pages of the integrations of task queues."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import wait_until

__all__ = ["BrokerPageCase", "option_rows", "run_test_of_page", "write_examples"]


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


class BrokerPageCase(SynchronousTestCase):
    """The page of a broker for a task library: its examples run as they are printed.

    A subclass also has a case with ``server``, the running broker of the test.
    """

    #: The programs of task libraries start slowly on a busy machine.
    timeout = 300
    page: ClassVar[str]
    broker_class: ClassVar[Callable[..., Any]]
    #: The arguments of ``python`` that start a worker of the example ``shop.py``.
    worker: ClassVar[tuple[str, ...]]
    #: The exit status of a worker after SIGTERM; None: the library does not define it.
    worker_status: ClassVar[int | None] = 0
    server: Any

    def write_examples(self) -> Path:
        """Write the examples, in files with their names; :returns: their folder."""
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        write_examples(self.page, folder, self.server.namesrv_address)
        return folder

    def test_a_worker_runs_the_tasks_of_the_page(self) -> None:
        """One task runs at once, and one after its delay; the worker stops after a signal."""
        folder = self.write_examples()
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1"}
        log = folder / "worker.log"
        with log.open("w") as output:
            worker = subprocess.Popen([sys.executable, *self.worker], cwd=folder,
                                      env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            subprocess.run([sys.executable, "send.py"], cwd=folder, env=environment, check=True,
                           timeout=60)
            wait_until("the tasks", lambda: "order 18 is billed" in log.read_text())
            text = log.read_text()
            self.assertLess(text.index("order 17 is billed"), text.index("order 18 is billed"))
            worker.terminate()
            status = worker.wait(60)
            if self.worker_status is not None:
                self.assertEqual(status, self.worker_status)
        finally:
            worker.kill()
            worker.wait()
        self.assertNotIn("Traceback", log.read_text())

    def test_the_test_of_the_page_passes(self) -> None:
        """The test of the page uses the fixture that is installed."""
        run = run_test_of_page(self.write_examples())
        self.assertIn("1 passed", run.stdout, run.stdout + run.stderr)

    def test_the_options_are_those_of_the_code(self) -> None:
        """The page gives each option with its default."""
        rows = option_rows(self.page)
        parameters = inspect.signature(self.broker_class).parameters
        named = {name: each.default for name, each in parameters.items()
                 if each.kind is inspect.Parameter.KEYWORD_ONLY}
        self.assertEqual(set(rows), set(named))
        for name, default in named.items():
            if isinstance(default, bool):
                self.assertEqual(rows[name], str(default))
            elif isinstance(default, int | float):
                self.assertEqual(float(rows[name].replace(",", "")), default)
