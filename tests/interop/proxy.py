"""Apache's proxy, in cluster mode, in front of a name server, and the clients that test it.

The proxy speaks gRPC with the 5.x clients and the remoting protocol with name servers and brokers.
It keeps nothing, so it is ended by a kill.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.interop.clients import (
    HERE,
    ROUND_TIMEOUT,
    WAIT_MS,
    client_home,
    java_classes,
    java_missing,
    python_with,
    run,
)
from tests.interop.peer import class_path, java_command, wait_for_port
from twistmq.broker.testing import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader

__all__ = ["BROKER_SETTINGS", "Proxy", "java_client_round", "make_topics", "programs_missing",
           "python_client_round"]

VERSION: Final = "5.3.3"
PROXY_MODULES: Final = ("proxy",)
MAIN: Final = "org.apache.rocketmq.proxy.ProxyStartup"
#: The 5.x clients; their versions are not those of the servers.
JAVA_CLIENT: Final = ("client-java",)
JAVA_CLIENT_VERSION: Final = "5.1.0"
PYTHON_CLIENT: Final = "rocketmq-python-client==5.1.2"
#: The settings that ``deploy/PROXY.md`` speaks of.
DEPLOYED: Final = HERE.parents[1] / "deploy" / "rmq-proxy.json"
#: Settings of the broker: two that users need as well, and shorter waits.
BROKER_SETTINGS: Final = {
    "enablePropertyFilter": "true", "recallMessageEnable": "true",
    "transactionCheckInterval": "1000", "transactionTimeOut": "3000", "reviveInterval": "100",
}
#: Settings of the proxy that make waits shorter. A push consumer's close waits for its poll.
QUICK: Final = {
    "minInvisibleTimeMillsForRecv": 500, "grpcClientConsumerMinLongPollingTimeoutMillis": 0,
    "grpcClientConsumerMaxLongPollingTimeoutMillis": 2000, "transactionHeartbeatPeriodSecond": 1,
}
#: The topics of the rounds, by what messages they take. Each has a group of its own name.
TOPICS: Final = {
    "NORMAL": ("ProxySends", "ProxyLarge", "ProxyRefusals", "ProxyInvisible", "ProxyBatches",
               "ProxyDead", "ProxyPush", "ProxyTags", "ProxySql", "ProxyPySends",
               "ProxyPyInvisible", "ProxyPyPush", "ProxyPyTags"),
    "FIFO": ("ProxyFifo", "ProxyFifoSimple", "ProxyPyFifo"),
    "DELAY": ("ProxyDelay", "ProxyRecall", "ProxyPyDelay"),
    "TRANSACTION": ("ProxyTransactions", "ProxyPyTransactions"),
}
#: The group whose messages are dead after their second attempt.
TWO_ATTEMPTS: Final = "ProxyDead"
#: A second group of a topic.
OTHER_GROUPS: Final = ("ProxyTagsSome",)


def programs_missing() -> str:
    """Why the proxy or its Java client cannot run here; empty when they can."""
    return (java_missing(VERSION, PROXY_MODULES)
            or java_missing(JAVA_CLIENT_VERSION, JAVA_CLIENT))


@dataclass
class Proxy:
    """A proxy of Apache's whose files are below one folder.

    :param port: where it speaks gRPC.
    :param remoting_port: where it speaks the remoting protocol with clients.
    """

    home: Path
    namesrv_address: str
    port: int
    remoting_port: int
    settings: dict[str, object] = field(default_factory=lambda: dict(QUICK))
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; return when it listens."""
        self.home.mkdir(parents=True, exist_ok=True)
        config = self.home / "rmq-proxy.json"
        config.write_text(json.dumps({
            **json.loads(DEPLOYED.read_text()), "namesrvAddr": self.namesrv_address,
            "grpcServerPort": self.port, "remotingListenPort": self.remoting_port,
            **self.settings}))
        command = java_command(self.home, [class_path(VERSION, PROXY_MODULES)], "512m")
        environment = {**os.environ, "ROCKETMQ_HOME": str(self.home)}
        environment.pop("NAMESRV_ADDR", None)
        with open(self.home / "proxy.out", "wb") as out:
            self._process = subprocess.Popen(
                [*command, MAIN, "-pc", str(config)], stdout=out, stderr=out, env=environment,
                cwd=self.home, start_new_session=True)
        wait_for_port(self.port, self._process)

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def make_topics(broker: str) -> None:
    """Make the topics and groups of both rounds.

    :param broker: "host:port".
    """
    with RawClient(broker) as client:
        for message_type, topics in TOPICS.items():
            for topic in topics:
                _ask(client, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
                    topic=topic, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4,
                    perm=6, topic_filter_type="SINGLE_TAG",
                    attributes=f"+message.type={message_type}"))
                _make_group(client, topic, message_type == "FIFO")
        for group in OTHER_GROUPS:
            _make_group(client, group, False)


def _make_group(client: RawClient, name: str, in_order: bool) -> None:
    """Create a group with a retry delay of one second."""
    _ask(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps({
        "groupName": name, "consumeMessageOrderly": in_order, "retryQueueNums": 1,
        "retryMaxTimes": 1 if name == TWO_ATTEMPTS else 16,
        "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}},
    }).encode())


def _ask(client: RawClient, code: RequestCode, header: CommandHeader | None = None,
         body: bytes = b"") -> None:
    reply = client.request(code, header, body)
    assert reply.code == ResponseCode.SUCCESS, f"{code.name}: {reply.code} {reply.remark}"


def java_client_round(endpoints: str) -> str:
    """Run the round of Apache's Java 5.x client; its output.

    :param endpoints: "host:port" of the proxy.
    :raises RoundError: when it does not end.
    """
    classes = java_classes(JAVA_CLIENT_VERSION, HERE / "proxy_java", "ProxyRound", JAVA_CLIENT)
    with client_home() as home:
        command = java_command(
            home, [str(classes), class_path(JAVA_CLIENT_VERSION, JAVA_CLIENT)])
        return run([*command, f"-Dround.wait_ms={WAIT_MS}", "ProxyRound", endpoints],
                   ROUND_TIMEOUT, cwd=home)


def python_client_round(endpoints: str) -> str:
    """Run the round of Apache's Python 5.x client; its output.

    :param endpoints: "host:port" of the proxy.
    :raises RoundError: when the client cannot be installed, or its round does not end.
    """
    with client_home() as home:
        return run([python_with(PYTHON_CLIENT), HERE / "proxy_round.py", endpoints],
                   ROUND_TIMEOUT, cwd=home,
                   environment={"HOME": str(home), "PYTHONIOENCODING": "utf-8"})
