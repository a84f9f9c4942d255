#!/usr/bin/env python3
"""The client beside aiokafka, each at its own broker on this machine, in turn, in one run.

  kafka_bench.py [--twistmq .venv/bin/twistmq] [--rounds 3] [--messages 200000]

Starts ours, and one Kafka broker in KRaft mode from the jars of Maven Central (needs java and mvn);
aiokafka is installed into an environment of its own, once. Messages of 128 bytes in 4 queues or
partitions: sends that the client batches for 10 ms, and reading 32 at a time. Prints a Markdown
table of medians: CPU a message of the client's process, and messages a second.
"""

from __future__ import annotations

import contextlib
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench_servers import Twistmq, parser_of
from client_bench import LOADS, Values, fill, run, topic_of

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


def kafka_jars() -> str:
    """The class path of Kafka's broker, whose jars are fetched when they are not there yet."""
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


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--port", type=int, default=PORT_FIRST)
    arguments = parser.parse_args()
    program, messages = Path(arguments.twistmq), str(arguments.messages)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-bench-")))
        server = Twistmq("twistmq", arguments.twistmq, folder, arguments.port)
        server.start("brokerFastFailureEnable=false")
        stack.callback(server.stop)
        address = stack.enter_context(kafka(folder))
        other = python_with(AIOKAFKA)
        namesrv = f"127.0.0.1:{arguments.port}"
        fill(program, namesrv, arguments.messages)
        # A line of a program that ran before may lack its end.
        print("\n| load | twistmq, us | aiokafka, us | ratio | twistmq, msg/s | aiokafka, msg/s |")
        print("| --- | --- | --- | --- | --- | --- |")
        for load in ("auto", "consume_batch"):
            commands: dict[str, list[str | Path]] = {
                "ours": [program.with_name("python"), HERE / "client_loads.py", load, namesrv,
                         topic_of(load), "--messages", messages],
                "theirs": [other, HERE / "kafka_loads.py", load, address, messages]}
            rounds: dict[str, list[Values]] = {name: [] for name in commands}
            for _ in range(arguments.rounds):
                for name, command in commands.items():
                    rounds[name].append(run(command, folder))
            ours, theirs = ({key: statistics.median(each[key] for each in done)
                             for key in ("cpu", "rate")} for done in rounds.values())
            print(f"| {re.sub(', 20 workers', '', LOADS[load][0])} | {ours['cpu']:.1f} "
                  f"| {theirs['cpu']:.1f} | {ours['cpu'] / theirs['cpu']:.1f}x "
                  f"| {ours['rate']:,.0f} | {theirs['rate']:,.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
