"""One small workload and one list of mqadmin commands, for any cluster with one broker.

    report = tour("127.0.0.1:9876", "127.0.0.1:10911")

gives what each command printed, by the command's name. It blocks; some seconds are JVMs starting.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.clients import HERE, RoundError, java_classes
from tests.interop.mqadmin import mqadmin
from tests.interop.peer import class_path, java_command
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import decode_command, encode_request
from twistmq.protocol.frame import FrameDecoder

__all__ = ["CONSUMERS", "PRODUCERS", "TOPIC", "tour", "wait_for_registration", "workload"]

TOPIC: Final = "AdminTopic"
PRODUCERS: Final = "AdminProducers"
CONSUMERS: Final = "AdminConsumers"
_VERSION: Final = "5.3.3"
#: A broker that was just started is registered within this, seconds.
_REGISTRATION_SECONDS: Final = 120.0
#: Connecting, sending, consuming and leaving take no longer, seconds.
_WORKLOAD_SECONDS: Final = 120.0


@contextlib.contextmanager
def workload(namesrv: str) -> Iterator[str]:
    """Run a producer and a consumer, which stay connected; returns the consumer's id."""
    classes = java_classes(_VERSION, HERE / "mqadmin_workload")
    with tempfile.TemporaryDirectory(prefix="workload-") as home:
        java = java_command(Path(home), [str(classes), class_path(_VERSION)])
        process = subprocess.Popen(
            [*java, "Workload", namesrv, TOPIC, PRODUCERS, CONSUMERS], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None and process.stdin is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line.startswith("ready "):
                    break
            else:
                raise RoundError("the workload failed:\n" + "".join(lines))
            yield lines[-1].split()[1]
            process.communicate("", _WORKLOAD_SECONDS)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


def wait_for_registration(namesrv: str, broker: str) -> None:
    """Wait until the name server knows the broker: Apache's listens some seconds before."""
    host, _, port = namesrv.rpartition(":")
    deadline = time.monotonic() + _REGISTRATION_SECONDS
    request = encode_request(RequestCode.GET_BROKER_CLUSTER_INFO, 1)
    decoder = FrameDecoder()
    answer = b""
    with socket.create_connection((host, int(port)), _REGISTRATION_SECONDS) as connection:
        while broker.encode() not in answer:
            if time.monotonic() > deadline:
                raise RoundError(f"the broker {broker} is not registered: {answer!r}")
            time.sleep(0.05)
            connection.sendall(request)
            while not (frames := decoder.feed(connection.recv(65536))):
                continue
            answer = decode_command(frames[0]).body


def _run(namesrv: str, commands: dict[str, str]) -> dict[str, str]:
    """Run commands by name; returns their outputs."""
    return dict(zip(commands, mqadmin(namesrv, list(commands.values()), version=_VERSION),
                    strict=True))


def tour(namesrv: str, broker: str) -> dict[str, str]:
    """Create, use, look at and delete a topic and a group.

    :returns: what each command printed; names that end in "again" are the same command later.
    """
    wait_for_registration(namesrv, broker)
    on = f"-b {broker}"
    report = _run(namesrv, {
        "updateTopic": f"updateTopic {on} -t {TOPIC} -r 4 -w 4 -p 6",
        "updateTopic again": f"updateTopic -c DefaultCluster -t {TOPIC} -r 4 -w 4 -p 6",
        "updateSubGroup": f"updateSubGroup {on} -g {CONSUMERS} -r 5",
        "topicStatus empty": f"topicStatus -t {TOPIC}",
        "consumerProgress nobody": f"consumerProgress -g {CONSUMERS}",
    })
    with workload(namesrv) as client_id:
        report |= _run(namesrv, {
            "topicList": "topicList",
            "topicList -c": "topicList -c",
            "topicRoute": f"topicRoute -t {TOPIC}",
            "topicStatus": f"topicStatus -t {TOPIC}",
            "topicClusterList": f"topicClusterList -t {TOPIC}",
            "clusterList": "clusterList",
            "clusterList -m": "clusterList -m",
            "brokerStatus": f"brokerStatus {on}",
            "getBrokerConfig": f"getBrokerConfig {on}",
            "getConsumerConfig": f"getConsumerConfig -g {CONSUMERS}",
            "consumerProgress": f"consumerProgress -g {CONSUMERS}",
            "consumerProgress all": "consumerProgress",
            "consumerConnection": f"consumerConnection -g {CONSUMERS}",
            "producerConnection": f"producerConnection -g {PRODUCERS} -t {TOPIC}",
            "producerConnection nobody": f"producerConnection -g Nobody -t {TOPIC}",
            "consumerStatus": f"consumerStatus -g {CONSUMERS} -i {client_id}",
            "topicStatus 1024": "topicStatus -t BenchmarkTest",
            "queryCq": f"queryCq -t {TOPIC} -q 0 -i 0 -c 1 -g {CONSUMERS}",
            "queryCq nothing": f"queryCq -t {TOPIC} -q 0 -i 2 -c 1",
        })
    return report | _run(namesrv, {
        "consumerProgress offline": f"consumerProgress -g {CONSUMERS}",
        "consumerConnection offline": f"consumerConnection -g {CONSUMERS}",
        "deleteSubGroup": f"deleteSubGroup {on} -g {CONSUMERS} -r true",
        "getConsumerConfig deleted": f"getConsumerConfig -g {CONSUMERS}",
        "deleteTopic": f"deleteTopic -c DefaultCluster -t {TOPIC}",
        "topicStatus deleted": f"topicStatus -t {TOPIC}",
        "topicRoute deleted": f"topicRoute -t {TOPIC}",
        "topicList deleted": "topicList",
    })
