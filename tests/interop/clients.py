"""Other people's clients with a name server: Apache's Java and Go clients, and a C++ one.

Every function here blocks. Call it from a thread (``deferToThread``), or from a test whose servers
are other processes. What a client needs is built once, into ~/.cache/rocketmq-peer/rounds, under a
name that tells its sources. ``*_missing`` says why a round cannot be run on this machine, empty
when it can: the reason of a skip.

    reason = java_missing("5.3.3")
    output = java_round("5.3.3", "phase1", "127.0.0.1:9876", state_file)
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.interop.kept import end_others
from tests.interop.peer import CACHE, MODULES, Peer, class_path, jars_folder, java_command
from tests.interop.ports import free_port

__all__ = ["JAVA_VERSIONS", "JavaTestCase", "RoundError", "client_home", "go_missing", "go_program",
           "go_round", "java_classes", "java_missing", "java_program", "java_round",
           "python_client_missing", "python_client_round", "python_with", "run"]

HERE: Final = Path(__file__).resolve().parent
ROUNDS: Final = CACHE / "rounds"
#: The Java clients that a round is run with.
JAVA_VERSIONS: Final = ("5.3.3", "4.9.4")
#: The C++ client of PyPI that has a wheel with its library inside.
PYTHON_CLIENT: Final = "rocketmq==0.4.4"
#: Longest wait for one condition, ms. A heartbeat the client skips while another is under way is
#: made up for 30 s later, and until then its pulls are refused, by Apache's broker too.
WAIT_MS: Final = 75_000
#: A whole round has ended after this, seconds; they take 5 to 30, on a busy machine several times
#: as long.
ROUND_TIMEOUT: Final = 400.0
#: Fetching and compiling has ended after this, seconds.
BUILD_TIMEOUT: Final = 600.0


#: Access key and secret key.
Keys = tuple[str, str]


class RoundError(Exception):
    """A client's round failed, or did not end in time; the text is its output."""


def run(command: Sequence[str | Path], timeout: float, *, cwd: Path | None = None,
        environment: dict[str, str] | None = None) -> str:
    """Run a program; returns its output, including errors."""
    process = subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, cwd=cwd, env={**os.environ, **(environment or {})},
        start_new_session=True)
    try:
        output = process.communicate(timeout=timeout)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate()[0].decode(errors="replace")
        raise RoundError(f"not done after {timeout} s: {command[0]}\n{output}") from None
    if process.returncode:
        raise RoundError(f"status {process.returncode}: {command[0]}\n{output}")
    return output


def _digest(*paths: Path) -> str:
    """Tell a set of sources from its other versions."""
    content = hashlib.sha256()
    for path in sorted(paths):
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    return content.hexdigest()[:16]


@contextmanager
def _building(target: Path) -> Iterator[Path | None]:
    """Give a folder to build in, which becomes ``target`` at the end; None when that exists.

    Test runners in several processes wait for each other here.
    """
    ROUNDS.mkdir(parents=True, exist_ok=True)
    with open(ROUNDS / f"{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            yield None
            return
        with tempfile.TemporaryDirectory(dir=ROUNDS) as folder:
            work = Path(folder) / "work"
            work.mkdir()
            yield work
            work.rename(target)


@contextmanager
def client_home() -> Iterator[Path]:
    """A home for a client: they all write logs and offsets there."""
    with tempfile.TemporaryDirectory(prefix="client-home-") as folder:
        yield Path(folder)


@cache
def java_missing(version: str, modules: Sequence[str] = MODULES) -> str:
    """Why Apache's programs of this version cannot run here; empty when they can."""
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            return f"no {program} on this machine"
    if shutil.which("mvn") is None and not (
            jars_folder(version, modules) / "complete").exists():
        return "no mvn to fetch the jars of Apache RocketMQ with"
    try:
        class_path(version, modules)
    except subprocess.CalledProcessError as error:
        return f"mvn could not fetch the jars of Apache RocketMQ {version}: {error}"
    return ""


class JavaTestCase(SynchronousTestCase):
    """A test that needs Apache's programs, skipped if they cannot run; ``folder`` is its own."""

    #: Of Apache's programs.
    version = "5.3.3"

    def setUp(self) -> None:
        end_others(type(self).__module__)
        # Not in setUpClass, which trial does not call.
        reason = java_missing(self.version)
        if reason:
            raise SkipTest(reason)
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start_apache(self, name: str = "peer", **options: Any) -> Peer:
        """Start Apache's servers on free ports; they are killed when the test ends.

        :param name: of the folder with their data.
        :param options: Peer's.
        """
        options = {"version": self.version, "namesrv_port": free_port(), "heap": "512m", **options}
        peer = Peer(self.folder / name, broker_port=free_port(), **options)
        self.addCleanup(peer.stop, kill=True)
        peer.start()
        return peer


def java_classes(
    version: str, folder: Path = HERE / "java", main: str | None = None,
    modules: Sequence[str] = MODULES,
) -> Path:
    """Compile Java sources of a folder for a release, once; the folder of the classes.

    Those of any folder may use ``Check`` of the folder ``java``.

    :param main: the class that is needed, with what it uses: others may be written for a release
        that has more. None: all there are.
    """
    sources = sorted({*folder.glob("*.java"), HERE / "java" / "Check.java"})
    target = ROUNDS / f"{main or folder.name}-{version}-{_digest(*sources)}"
    needed = sorted(folder.glob("*.java")) if main is None else [folder / f"{main}.java"]
    with _building(target) as work:
        if work is not None:
            run(["javac", "-encoding", "UTF-8", "-nowarn", "-cp", class_path(version, modules),
                 "-sourcepath", f"{folder}:{HERE / 'java'}", "-d", work, *needed], BUILD_TIMEOUT)
    return target


def java_round(
    version: str, phase: str, namesrv: str, state: Path, *, serialize_type: str = "JSON",
    redelivery_ms: int = WAIT_MS, timeout: float = ROUND_TIMEOUT, keys: Keys | None = None,
) -> str:
    """Run one phase of the Java client's round; returns its output."""
    classes = java_classes(version, main="SpineRound")
    with client_home() as home:
        command = java_command(home, [str(classes), class_path(version)])
        options = [f"-Drocketmq.serialize.type={serialize_type}",
                   f"-Dround.redelivery_ms={redelivery_ms}", f"-Dround.wait_ms={WAIT_MS}"]
        if keys is not None:
            options += [f"-Dround.access_key={keys[0]}", f"-Dround.secret_key={keys[1]}"]
        return run([*command, *options, "SpineRound", phase, namesrv, state], timeout)


def java_program(version: str, main: str, *arguments: str, timeout: float = ROUND_TIMEOUT) -> str:
    """Run one of the programs beside the round; returns its output."""
    classes = java_classes(version, main=main)
    with client_home() as home:
        command = java_command(home, [str(classes), class_path(version)])
        return run([*command, f"-Dround.wait_ms={WAIT_MS}", main, *arguments], timeout)


@cache
def go_missing() -> str:
    """Why Apache's Go client cannot run here; empty when it can."""
    if shutil.which("go") is None:
        return "no go on this machine"
    try:
        run(["go", "mod", "download"], BUILD_TIMEOUT, cwd=HERE / "go_round")
    except RoundError as error:
        return f"the Go client's modules could not be fetched: {error}"
    return ""


def go_program(name: str, folder: Path = HERE) -> Path:
    """Compile a program of a folder in Go, once; the executable."""
    source = folder / name
    target = ROUNDS / f"{name}-{_digest(*source.iterdir())}"
    with _building(target) as work:
        if work is not None:
            run(["go", "build", "-o", work / name, "."], BUILD_TIMEOUT, cwd=source)
    return target / name


def go_round(
    namesrv: str, *, timeout: float = ROUND_TIMEOUT, keys: Keys | None = None
) -> str:
    """Run the Go client's round; returns its output."""
    program = go_program("go_round")
    with client_home() as home:
        signing = [] if keys is None else ["-access-key", keys[0], "-secret-key", keys[1]]
        return run([program, "-namesrv", namesrv, *signing], timeout,
                   environment={"HOME": str(home)})


def python_with(requirement: str) -> Path:
    """An environment with a client of PyPI, made once; its Python.

    :param requirement: ``name==version``.
    :raises RoundError: when it cannot be installed.
    """
    target = ROUNDS / f"venv-{requirement.replace('==', '-')}"
    with _building(target) as work:
        if work is not None:
            # A test's own folder, where this may run in the background, goes with the test.
            run([sys.executable, "-m", "venv", work], BUILD_TIMEOUT, cwd=work)
            # As a module: the environment's scripts name a folder that is about to be renamed.
            run([work / "bin" / "python", "-m", "pip", "install", "-q", "--only-binary=:all:",
                 requirement], BUILD_TIMEOUT, cwd=work)
    return target / "bin" / "python"


@cache
def python_client_missing() -> str:
    """Why PyPI's rocketmq 0.4.4 cannot run here; empty when it can."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"{PYTHON_CLIENT} has a wheel for x86-64 Linux only"
    try:
        python_with(PYTHON_CLIENT)
    except RoundError as error:
        return f"{PYTHON_CLIENT} could not be installed: {error}"
    return ""


def python_client_round(
    namesrv: str, *, expands_batches: bool = True, timeout: float = ROUND_TIMEOUT,
    keys: Keys | None = None,
) -> str:
    """Run the round of PyPI's rocketmq 0.4.4; returns its output."""
    with client_home() as home:
        kind = "expands_batches" if expands_batches else "keeps_batches"
        return run([python_with(PYTHON_CLIENT), HERE / "python_round.py", namesrv, kind,
                    *(keys or ())], timeout,
                   environment={"HOME": str(home), "PYTHONIOENCODING": "utf-8"})
