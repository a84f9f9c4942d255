# ^The client compared with aiokafka, each at its own broker on this machine, in turn.
"""The client beside aiokafka, each at its own broker on this machine, in turn, in one run.

  kafka_bench.py [--twistmq .venv/bin/twistmq] [--rounds 3] [--seconds 2] [--messages 200000]

Starts ours, and one Kafka broker in KRaft mode from the jars of Maven Central (needs java and mvn);
aiokafka is installed into an environment of its own, once, and runs compiled, as it is installed,
and in plain Python too. Both brokers and their clients run until they are warm (warm_up.py) before
a load counts. Messages have 128 bytes and lie in 4 queues or partitions. The client batches sends
for 10 ms. It reads 32 messages at a time, by polls and by handlers; aiokafka reads them by
``getmany``. A pull brings at most 32 messages, which is Apache's default, unless the row has
another number. The client asks for so many then (``pull_count``), and the broker may give them
(``maxTransferCountOnMessageInMemory``). A fetch of Kafka brings up to 1 MiB of each partition.
Prints a Markdown table of medians: CPU a message of the client's process, and messages a second.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench_servers import Twistmq, parser_of
from client_bench import fill, topic_of
from load_process import LoadProcess, Values, medians_in_turn

from tests.interop.clients import python_with
from tests.interop.peer import CACHE, wait_for_port
from tests.interop.ports import free_port

HERE = Path(__file__).resolve().parent
KAFKA, AIOKAFKA = "3.9.0", "aiokafka==0.14.0"
POM = (
    '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    "<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version><dependencies>"
    "<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>"
    f"<version>{KAFKA}</version></dependency></dependencies></project>")
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/kafka-data
offsets.topic.replication.factor=1
num.partitions=4
group.initial.rebalance.delay.ms=0
"""
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
PORT_FIRST = 32_740
#: The broker gives at most so many messages to one pull.
PULL_COUNT_MAX = 1024
#: By load of ours: its text, and the load of aiokafka.
LOADS = {
    "auto": ("8,192 sends, batched by the client", "auto"),
    "poll32": ("polls of 32 messages", "consume"),
    f"poll{PULL_COUNT_MAX}": (f"polls of 32 messages, pulls of {PULL_COUNT_MAX:,}", "consume"),
    "consume_batch": ("push, 32 messages a call", "consume"),
}


def kafka_jars() -> str:
    """Return the class path of Kafka's broker; missing jars are fetched."""
    home = CACHE / f"kafka-{KAFKA}"
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(POM)
        subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies",
                        f"-DoutputDirectory={home}/lib"], cwd=home, check=True)
        (home / "complete").touch()
    return f"{home}/lib/*"


@contextlib.contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """Run Kafka's broker; gives its address."""
    port, controller = free_port(), free_port()
    file = folder / "server.properties"
    file.write_text(SETTINGS.format(port=port, controller=controller, folder=folder))
    java = ["java", "-Xmx512m", "-cp", kafka_jars()]
    with open(folder / "kafka.log", "w") as log:
        subprocess.run([*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", file],
                       stdout=log, stderr=log, check=True)
        server = subprocess.Popen([*java, "kafka.Kafka", file], stdout=log, stderr=log)
        try:
            wait_for_port(port, server)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(60)


def times_of(values: Values) -> Values:
    """Return us of CPU and of time a message: a cold broker makes its clients wait, not work."""
    return {"us": values["cpu"], "us of time": 1e6 / values["rate"]}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="of each round")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--port", type=int, default=PORT_FIRST)
    arguments = parser.parse_args()
    program, messages = Path(arguments.twistmq), str(arguments.messages)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-bench-")))
        server = Twistmq("twistmq", arguments.twistmq, folder, arguments.port)
        server.start("brokerFastFailureEnable=false",
                     f"maxTransferCountOnMessageInMemory={PULL_COUNT_MAX}")
        stack.callback(server.stop)
        address = stack.enter_context(kafka(folder))
        other = python_with(AIOKAFKA)
        namesrv = f"127.0.0.1:{arguments.port}"
        fill(program, namesrv, arguments.messages)
        # Printed last: a line of a program that ran before may lack its end.
        rows = ["| load | twistmq, us | aiokafka, us | ratio | aiokafka in Python, us "
                "| twistmq, msg/s | aiokafka, msg/s |", "| --- |" + " --- |" * 6]
        for load, (text, theirs) in LOADS.items():
            their_command: list[str | Path] = [
                other, HERE / "kafka_loads.py", theirs, address, messages]
            commands: dict[str, list[str | Path]] = {
                "ours": [program.with_name("python"), HERE / "client_loads.py", load, namesrv,
                         topic_of(load), "--messages", messages],
                "theirs": their_command,
                "in Python": ["env", "AIOKAFKA_NO_EXTENSIONS=1", *their_command]}
            with contextlib.ExitStack() as running:
                found = medians_in_turn(
                    load, {name: running.enter_context(LoadProcess(command, folder))
                           for name, command in commands.items()},
                    arguments.rounds, arguments.seconds, cold=["in Python"], warmed_by=times_of)
            cpu = {name: values["cpu"] for name, values in found.items()}
            rows.append(
                f"| {text} | {cpu['ours']:.1f} | {cpu['theirs']:.1f} "
                f"| {cpu['ours'] / cpu['theirs']:.1f}x | {cpu['in Python']:.1f} "
                f"| {found['ours']['rate']:,.0f} | {found['theirs']['rate']:,.0f} |")
    print("", *rows, sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
