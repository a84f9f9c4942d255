# ^Run the real Apache RocketMQ beside this project, from its published jars.
"""Run the real Apache RocketMQ beside this project, from its published jars.

The jars come from the Maven registry that `mvn` is configured with, once, into
~/.cache/rocketmq-peer/<version>. Everything listens on 127.0.0.1. Needs `java` (17) and `mvn`.

  peer.py jars                  resolve the jars, print the class path
  peer.py start DIR             name server and broker with their data under DIR; returns when
                                both answer. Options: --namesrv PORT, --broker PORT,
                                --set key=value ..., --heap 512m, --no-namesrv, --namesrv-addr A,
                                --broker-property key=value ... (Java's, such as tls.*),
                                --short-lived (they start sooner, and are slower later)
  peer.py stop DIR [--kill]     stop them (clean shutdown; --kill leaves a crashed store behind)
  peer.py mqadmin ARGS...       Apache's admin tool, e.g. mqadmin clusterList -n 127.0.0.1:9876
  peer.py java FILE.java ARGS   run one Java source file against the Apache client

`--version 5.3.3` before the command picks another release (published whole: 4.9.4, 5.1.4, 5.2.0,
5.3.3, 5.4.0). As a module: :class:`Peer`, :func:`class_path` and :func:`java_command`.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["ARCHIVE", "CACHE", "MODULES", "PATIENT", "PLAIN", "QUIET_LOGGING", "SHORT_LIVED",
           "Peer", "class_path", "dledger_path", "jars_folder", "java_command", "wait_for_port"]

CACHE: Final = Path.home() / ".cache" / "rocketmq-peer"
POM: Final = (
    '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
    "<groupId>peer</groupId><artifactId>peer</artifactId><version>1</version>"
    "<dependencies>{}</dependencies></project>"
)
DEPENDENCY: Final = (
    "<dependency><groupId>{group}</groupId>"
    "<artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
)
#: Settings of brokers, this project's as well, that are not tested for what they refuse. Without
#: them one that gets no processor for 200 ms refuses sends, and Java clients try some only once.
PATIENT: Final = {"brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": "60000"}
#: How long a server may take to start or to end, seconds: several share the machine's cores.
PATIENCE_SECONDS: Final = 120.0
#: Options of Java for a process that ends soon: it compiles little, and one thread collects.
#: Apache's servers, tools and clients start with two thirds of the processor time.
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
#: The classes of one release as Java maps them, beside the folder of its jars; share.py makes it.
ARCHIVE: Final = "classes.jsa"
#: Runs a short-lived program when it is its turn to start.
IN_TURN: Final = (sys.executable, "-I", "-S", str(Path(__file__).resolve().with_name("turn.py")))
#: Settings of a short-lived broker. Without them 5.3.3 takes most of a core for three seconds,
#: while its metrics of transactions wait in a loop, and then a quarter of one, since it compares
#: all of its timer wheel with the file each second.
LIGHT: Final = {"transactionMetricFlushInterval": "500", "timerFlushIntervalMs": "10000"}
#: Java's system properties of a short-lived server. With TLS it makes a certificate when it starts,
#: and checks the signed jar that does so: half of the processor time of a start.
PLAIN: Final = {"tls.server.mode": "disabled"}
#: Runs a short-lived server whose waits may last 5 ms longer. The threads of an idle broker wake up
#: two thousand times a second, which is a tenth of a core.
UNHURRIED: Final = ("sh", "-c", 'echo 5000000 >/proc/self/timerslack_ns; exec "$@"', "sh")
#: What the broker of 4.9.4 asks of a Java that it does not know: without it the broker ends with
#: status 253 when it is to remove a file of a store that it finds, which it does at most starts.
OPENED: Final = ("--add-opens=java.base/java.nio=ALL-UNNAMED",
                 "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED")
MODULES: Final = ("broker", "namesrv", "tools")
QUIET_LOGGING: Final = '<configuration><root level="OFF"/></configuration>'
#: Warnings and errors go to a file of the process's home, with the texts of exceptions.
WARNINGS: Final = (
    '<configuration><appender name="F" class="ch.qos.logback.core.FileAppender">'
    "<file>{home}/{name}.log</file><encoder><pattern>%level %logger - %msg%n%ex</pattern></encoder>"
    '</appender><root level="WARN"><appender-ref ref="F"/></root></configuration>')
NAMESRV_MAIN: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER_MAIN: Final = "org.apache.rocketmq.broker.BrokerStartup"
MQADMIN_MAIN: Final = "org.apache.rocketmq.tools.command.MQAdminStartup"


def jars_folder(version: str, modules: Sequence[str] = MODULES) -> Path:
    """Return the folder of the jars of one release; ``complete`` exists when all are there."""
    return CACHE / (version if modules == MODULES else "-".join((*modules, version)))


def class_path(version: str, modules: Sequence[str] = MODULES) -> str:
    """Return the class path of one release; missing jars are fetched."""
    return _fetched(jars_folder(version, modules), [DEPENDENCY.format(
        group="org.apache.rocketmq", artifact=f"rocketmq-{name}", version=version)
        for name in modules])


def dledger_path(version: str) -> str:
    """Return the class path of one release of DLedger alone; missing jars are fetched."""
    return _fetched(CACHE / f"dledger-{version}", [DEPENDENCY.format(
        group="io.openmessaging.storage", artifact="dledger", version=version)])


def _fetched(home: Path, dependencies: Sequence[str]) -> str:
    """Return the class path of a folder into which the jars were fetched once."""
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(POM.format("".join(dependencies)))
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={home}/lib"]
        subprocess.run(["mvn", "-q", "-B", *goal], cwd=home, check=True)
        (home / "complete").touch()
    return f"{home}/lib/*"


def java_command(
    home: Path, class_paths: list[str], heap: str = "256m", *, short_lived: bool = True
) -> list[str]:
    """Return a quiet `java` command with its files in a folder; options and main
    class may follow.
    """
    home.mkdir(parents=True, exist_ok=True)
    quiet = home / "quiet.xml"
    quiet.write_text(QUIET_LOGGING)
    # An archive stands for the jars at the begin of the class path.
    class_paths = sorted(class_paths, key=lambda path: not path.endswith("/*"))
    quick = [*IN_TURN, "java", *SHORT_LIVED, *_sharing(class_paths[0])]
    return [*(quick if short_lived else ["java"]), f"-Xmx{heap}",
            f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", f"-Drocketmq.home.dir={home}",
            f"-Drmq.logback.configurationFile={quiet}", f"-Dlogback.configurationFile={quiet}",
            "-cp", ":".join(class_paths)]


def _sharing(jars: str) -> list[str]:
    """Return the options of a program that maps the archive of these jars, if there is one.

    Java goes on without an archive that is another Java's, and would say so in its output.
    """
    archive = Path(jars).parent.parent / ARCHIVE
    if not jars.endswith("/*") or not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr"]


def wait_for_port(port: int, process: subprocess.Popen[bytes],
                  seconds: float = PATIENCE_SECONDS) -> None:
    """Return when something listens; :raises RuntimeError: when the process ends first."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"peer: Java ended with status {process.returncode}; "
                               "see its .out file")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"peer: nothing listens on port {port} after {seconds} s")


def wait_for_end(pid: int, seconds: float = PATIENCE_SECONDS) -> None:
    """Return when the process has ended; a zombie, which has no command line, has."""
    line = Path(f"/proc/{pid}/cmdline")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if not line.read_bytes():
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.05)
    raise RuntimeError(f"peer: process {pid} still runs after {seconds} s")


def wait_for_registration(namesrv_port: int, broker_port: int,
                          seconds: float = PATIENCE_SECONDS) -> None:
    """Return when the name server knows the broker, which listens some seconds before.

    :raises RuntimeError: when it does not in time.
    """
    header = (b'{"code":106,"flag":0,"language":"JAVA","opaque":1,'
              b'"serializeTypeCurrentRPC":"JSON","version":479}')
    request = struct.pack(">ii", 4 + len(header), len(header)) + header
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.create_connection(("127.0.0.1", namesrv_port), seconds) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as replies:
                (size,) = struct.unpack(">i", replies.read(4))
                if f':{broker_port}"'.encode() in replies.read(size):
                    return
        time.sleep(0.05)
    raise RuntimeError(f"peer: the broker at {broker_port} is not registered after {seconds} s")


@dataclass
class Peer:
    """A name server and a broker of Apache's with their data under one folder.

    ``settings`` are the broker's, and win over those that :meth:`broker_settings` gives; an empty
    one is not given: without ``namesrvAddr`` the broker has no name server.
    """

    home: Path
    version: str = "5.3.3"
    namesrv_port: int = 19876
    broker_port: int = 20911
    heap: str = "1g"
    with_namesrv: bool = True
    namesrv_address: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    #: Whether the servers may be slower than Java can be, to start sooner.
    short_lived: bool = True
    #: Java's system properties, of both processes.
    properties: dict[str, str] = field(default_factory=dict)
    #: More of them, of the broker only.
    broker_properties: dict[str, str] = field(default_factory=dict)
    #: More options of Java, of the broker only.
    broker_options: Sequence[str] = ()
    #: The name server's, beside its port.
    namesrv_settings: dict[str, str] = field(default_factory=dict)
    #: Whether the broker writes warnings and errors to ``broker.log`` of the home.
    with_log: bool = False
    #: What this object started itself, by name.
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home = self.home.resolve()
        self.namesrv_address = self.namesrv_address or f"127.0.0.1:{self.namesrv_port}"

    def broker_settings(self) -> dict[str, str]:
        """Return the settings in the broker's file."""
        settings = {
            "brokerClusterName": "DefaultCluster", "brokerName": "broker-peer", "brokerId": "0",
            "brokerIP1": "127.0.0.1", "listenPort": str(self.broker_port),
            "namesrvAddr": self.namesrv_address,
            "storePathRootDir": f"{self.home}/store",
            "storePathCommitLog": f"{self.home}/store/commitlog",
            "enablePropertyFilter": "true", "traceTopicEnable": "true", **PATIENT,
            **(LIGHT if self.short_lived else {}), **self.settings,
        }
        return {name: text for name, text in settings.items() if text}

    def start(self) -> None:
        """Start both; return when both listen and a client would find the broker."""
        if self.with_namesrv:
            self.start_namesrv()
        self.start_broker()
        # A broker 5.3.3 that compresses its registration is never registered.
        if self.with_namesrv and "compressedRegister" not in self.settings:
            wait_for_registration(self.namesrv_port, self.broker_port)

    def start_namesrv(self) -> None:
        """Start the name server alone."""
        self._launch("namesrv", NAMESRV_MAIN, {
            "listenPort": str(self.namesrv_port), **self.namesrv_settings})

    def start_broker(self) -> None:
        """Start the broker alone."""
        self._launch("broker", BROKER_MAIN, self.broker_settings())

    def _launch(self, name: str, main: str, settings: dict[str, str]) -> None:
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        # 4.x does not start without it.
        logging = WARNINGS.format(home=self.home, name=name) if self.with_log else QUIET_LOGGING
        (self.home / "conf" / f"logback_{name}.xml").write_text(logging)
        config = self.home / f"{name}.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = java_command(self.home, [class_path(self.version)], self.heap,
                               short_lived=self.short_lived)
        (self.home / "quiet.xml").write_text(logging)
        if name == "broker":
            command += self.broker_options
        properties = {**(PLAIN if self.short_lived else {}), **self.properties,
                      **(self.broker_properties if name == "broker" else {})}
        command += [f"-Xms{self.heap}", *OPENED, *[
            f"-D{key}={value}" for key, value in properties.items()]]
        environment = {**os.environ, "ROCKETMQ_HOME": str(self.home)}
        environment.pop("NAMESRV_ADDR", None)
        with open(self.home / f"{name}.out", "wb") as out:
            process = subprocess.Popen(
                [*(UNHURRIED if self.short_lived else ()), *command, main, "-c", str(config)],
                stdout=out, stderr=out, env=environment, start_new_session=True)
        self.processes[name] = process
        (self.home / f"{name}.pid").write_text(str(process.pid))
        wait_for_port(int(settings["listenPort"]), process)

    def stop(self, *, kill: bool = False) -> None:
        """Stop both, and wait for their ends."""
        self.stop_one("broker", kill=kill)
        self.stop_one("namesrv", kill=kill)

    def signal_broker(self, how: signal.Signals) -> None:
        """Send the broker a signal, such as SIGSTOP."""
        os.kill(int((self.home / "broker.pid").read_text()), how)

    def stop_one(self, name: str, *, kill: bool = False) -> None:
        """Stop ``broker`` or ``namesrv`` when it runs.

        :param kill: do not let it shut down, so that it leaves a crashed store.
        """
        pid_file = self.home / f"{name}.pid"
        if not pid_file.exists():
            return
        pid = int(pid_file.read_text())
        try:
            os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
            wait_for_end(pid)
        except ProcessLookupError:
            pass
        pid_file.unlink()
        if name in self.processes:
            self.processes.pop(name).wait()


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="5.3.3")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("jars")
    begin = commands.add_parser("start")
    begin.add_argument("dir", type=Path)
    begin.add_argument("--namesrv", type=int, default=19876)
    begin.add_argument("--broker", type=int, default=20911)
    begin.add_argument("--heap", default="1g")
    begin.add_argument("--set", action="append", default=[])
    begin.add_argument("--broker-property", action="append", default=[])
    begin.add_argument("--short-lived", action="store_true")
    begin.add_argument("--no-namesrv", action="store_true")
    begin.add_argument("--namesrv-addr", default="")
    end = commands.add_parser("stop")
    end.add_argument("dir", type=Path)
    end.add_argument("--kill", action="store_true")
    for name in ("mqadmin", "java"):
        commands.add_parser(name).add_argument("args", nargs=argparse.REMAINDER)
    return parser.parse_args()


def start(args: argparse.Namespace) -> None:
    """The command `start`."""
    settings = dict(pair.split("=", 1) for pair in args.set)
    peer = Peer(args.dir, args.version, args.namesrv, args.broker, args.heap,
                not args.no_namesrv, args.namesrv_addr, settings, short_lived=args.short_lived,
                broker_properties=dict(pair.split("=", 1) for pair in args.broker_property))
    peer.start()
    print(f"name server {peer.namesrv_address}, broker 127.0.0.1:{args.broker}, "
          f"store {peer.home}/store, broker pid {(peer.home / 'broker.pid').read_text()}")


def main() -> None:
    """The command line."""
    args = parse_arguments()
    if args.command == "jars":
        print(class_path(args.version))
    elif args.command == "start":
        start(args)
    elif args.command == "stop":
        Peer(args.dir).stop(kill=args.kill)
    else:
        program = [MQADMIN_MAIN] if args.command == "mqadmin" else []
        home = CACHE / "home"
        command = java_command(home, [class_path(args.version)], "1g")
        os.environ.setdefault("ROCKETMQ_HOME", str(home))
        os.execvp("java", [*command, *program, *args.args])


if __name__ == "__main__":
    main()
