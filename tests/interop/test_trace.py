"""`mqadmin queryMsgTraceById` shows the traces of clients and the traces of our broker."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.interop.clients import JavaTestCase
from tests.interop.mqadmin import mqadmin
from tests.interop.peer import Peer
from tests.interop.servers import Servers, free_port
from tests.interop.trace_round import java_trace

TOPIC: Final = "TraceRound"
PARTS: Final = ("plain", "delayed", "transaction", "consume")
#: Clients hand records over within five seconds, the broker knows of a consumption within six.
WAIT_SECONDS: Final = 90.0
_VOLATILE: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "<time>"),
    (re.compile(r"\b\d+ms *"), "<cost> "),
)
TITLE: Final = "#Type #{}Group #ClientHost #{}Time #CostTimes #Status"


def shape(text: str) -> list[str]:
    """Return the lines with replaced variable parts, in a fixed order."""
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())


def shown(group: str, *consumed: str) -> list[str]:
    """Return the output for a message of a group that was consumed with these results."""
    lines = [TITLE.format("Producer", "Send"), f"Pub {group} 127.0.0.1 <time> <cost> success"]
    if consumed:
        lines.append(TITLE.format("Consumer", "Consumer"))
    return sorted(lines + [f"Sub TraceC 127.0.0.1 <time> <cost> {result}" for result in consumed])


#: Of each message of the round. A failed one is tried again.
WANTED: Final = {
    "tagged": shown("TraceP", "failed", "success"), "bare": shown("TraceP", "success"),
    "async": shown("TraceP", "success"), "delayed": shown("TraceP", "success"),
    "committed": shown("TraceTxP", "success"), "rolled-back": shown("TraceTxP"),
}


class TraceTests(JavaTestCase):
    """One round of the client 5.3.3 in each test."""

    def ours(self, *settings: str) -> str:
        """Start our broker; the name server."""
        running = Servers(self.folder / "ours", "brokerIP1=127.0.0.1", *settings)
        running.start()
        self.addCleanup(running.stop)
        return running.namesrv

    def apache(self) -> str:
        """Start Apache's; the name server."""
        peer = Peer(Path(self.folder / "peer"), namesrv_port=free_port(), broker_port=free_port(),
                    heap="512m")
        self.addCleanup(peer.stop, kill=True)
        peer.start()
        return peer.namesrv_address

    def shows(self, namesrv: str, trace: bool, *, version: str = "5.3.3") -> None:
        """Run the round, and wait until the tool shows all of it, and nothing else."""

        def query(ids: dict[str, str]) -> dict[str, list[str]]:
            texts = mqadmin(namesrv, [f"queryMsgTraceById -i {ids[kind]}" for kind in WANTED])
            return {kind: shape(text) for kind, text in zip(WANTED, texts, strict=True)}

        def wait(ids: dict[str, str]) -> None:
            until(lambda: query(ids) == WANTED)
            last = query(ids)
            self.assertEqual(last, WANTED)

        ids = java_trace(version, namesrv, TOPIC, trace, PARTS, wait)
        # A client hands over what it kept back when it ends: it must not be there by then.
        self.assertEqual(query(ids), WANTED)

    def test_client_traces(self) -> None:
        """The broker is ours."""
        self.shows(self.ours("traceTopicEnable=true"), True)

    def long_client_traces_with_apache(self) -> None:
        """The broker is Apache's, which gives the same output."""
        self.shows(self.apache(), True)

    def test_broker_traces(self) -> None:
        """A client without a trace of its own is shown in the same form."""
        self.shows(self.ours("trace.server=true"), False)

    def long_older_client(self) -> None:
        """A client 4.9.4 is shown in the same form."""
        self.shows(self.ours("trace.server=true"), False, version="4.9.4")

    def long_client_traces_and_broker_could(self) -> None:
        """No record of a client with its own trace occurs twice."""
        self.shows(self.ours("traceTopicEnable=true", "trace.server=true"), True)


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition, for as long as anything of it may take."""
    end = time.monotonic() + WAIT_SECONDS
    while not holds() and time.monotonic() < end:
        time.sleep(0.5)
