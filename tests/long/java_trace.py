"""Draw one trace of a Java producer, a consumer of the client and a Celery task.

    python -m tests.long.java_trace [--json FILE]

OpenTelemetry's Java agent runs in Apache's Java client, which sends a delayed message. A consumer
of our client receives it and starts a Celery task, which a worker runs; both are started by
``opentelemetry-instrument``. All three send their spans to a small collector here (OTLP over HTTP).
The picture of the trace is printed: a line for each span, below its parent. The exit status is 1
if the spans do not form one trace from the Java program to the task. The agent's jar comes from
Maven, and the Python programs need ``pip install opentelemetry-exporter-otlp-proto-http
opentelemetry-instrumentation-celery``.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.interop.clients import java_classes
from tests.interop.peer import CACHE, class_path, java_command
from tests.interop.servers import servers, wait_until

__all__ = ["Collector", "Span", "picture"]

ROOT: Final = Path(__file__).resolve().parents[2]
ROCKETMQ: Final = "5.3.3"
AGENT: Final = "io.opentelemetry.javaagent:opentelemetry-javaagent:2.31.1"
NEEDED: Final = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.instrumentation.celery")
TOPIC: Final = "orders"
JAVA, CONSUMER, WORKER = "java-shop", "consumer", "celery-worker"

SHOP: Final = """
import os
from celery import Celery
import twistmq.integrations.celery

app = Celery("shop", broker="twistmq://" + os.environ["ADDRESS"])
app.conf.broker_connection_retry_on_startup = True

@app.task(name="bill", ignore_result=True)
def bill(order):
    print(f"{order} is billed", flush=True)
"""
RECEIVE: Final = f"""
import os
from shop import bill
from twistmq.client import Consumer

with Consumer(os.environ["ADDRESS"], group="billing", topics="{TOPIC}", start="first") as consumer:
    def handle(message):
        bill.delay(message.body.decode())
        consumer.stop()

    consumer.run(handle)
"""


class Span(NamedTuple):
    """One span; times are in Unix nanoseconds, and a root has an empty ``parent_id``."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int


class Collector(ThreadingHTTPServer):
    """Receives spans by OTLP over HTTP, and keeps them in the form of OTLP's JSON."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        """The endpoint for exporters."""
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> list[Span]:
        """Return all spans."""
        return [each for request in self.requests for each in _spans(request)]


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/traces":
            self.server.requests.append(
                _with_hex_ids(MessageToDict(ExportTraceServiceRequest.FromString(body))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


def _with_hex_ids(value: Any) -> Any:
    """Write the ids as OTLP's JSON does, in which they are not base64."""
    if isinstance(value, list):
        return [_with_hex_ids(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: base64.b64decode(each).hex() if name in ("traceId", "spanId", "parentSpanId")
            else _with_hex_ids(each) for name, each in value.items()}


def _spans(request: dict[str, Any]) -> Iterator[Span]:
    for resource in request.get("resourceSpans", ()):
        service = next(each["value"]["stringValue"] for each in resource["resource"]["attributes"]
                       if each["key"] == "service.name")
        for scope in resource.get("scopeSpans", ()):
            for span in scope["spans"]:
                yield Span(service, span["name"], span["kind"].removeprefix("SPAN_KIND_").lower(),
                           span["traceId"], span["spanId"], span.get("parentSpanId", ""),
                           int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))


def picture(spans: list[Span]) -> list[str]:
    """Return a line for each span of a trace, below its parent and indented.

    :param spans: the spans of one trace. A span whose parent is not among them stands on the left.
    """
    first_ns = min(span.start_ns for span in spans)
    ids = {span.span_id for span in spans}

    def lines(parent_id: str | None, depth: int) -> Iterator[str]:
        for span in sorted(spans, key=lambda span: span.start_ns):
            is_root = span.parent_id not in ids
            if is_root if parent_id is None else span.parent_id == parent_id:
                begin_ms = (span.start_ns - first_ns) / 1e6
                took_ms = (span.end_ns - span.start_ns) / 1e6
                yield (f"{begin_ms:9.1f} ms {took_ms:8.1f} ms  {span.service:<14} "
                       f"{'  ' * depth}{span.name} ({span.kind})")
                yield from lines(span.span_id, depth + 1)

    return list(lines(None, 0))


def _agent() -> Path:
    """Return the jar of the agent, which is fetched when it is not there yet."""
    _, name, version = AGENT.split(":")
    jar = CACHE / f"{name}-{version}.jar"
    if not jar.exists():
        subprocess.run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={AGENT}",
                        f"-DoutputDirectory={CACHE}"], check=True)
    return jar


def _run_programs(folder: Path, address: str, url: str, collector: Collector) -> None:
    """Run the three programs until the span of the task has arrived."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "receive.py").write_text(RECEIVE)
    environment = {
        **os.environ, "ADDRESS": address, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none",
        "OTEL_BSP_SCHEDULE_DELAY": "200"}
    launcher = [str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable]

    def start(service: str, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=folder,
                                env={**environment, "OTEL_SERVICE_NAME": service})

    java = java_command(folder / "java", [
        str(java_classes(ROCKETMQ, main="TimedSend")), class_path(ROCKETMQ)])
    with ExitStack() as stack:
        worker = start(WORKER, *launcher, "-m", "celery", "-A", "shop", "worker",
                       "--pool", "solo", "--loglevel", "WARNING")
        stack.callback(worker.wait)
        stack.callback(worker.terminate)
        sender = start(JAVA, *java, f"-javaagent:{_agent()}", "TimedSend", address, TOPIC, "1")
        if sender.wait(120):
            raise SystemExit("the Java program failed")
        consumer = start(CONSUMER, *launcher, "receive.py")
        stack.callback(consumer.wait)
        stack.callback(consumer.terminate)
        if consumer.wait(60):
            raise SystemExit("the consumer failed")
        wait_until("the span of the task", lambda: any(
            span.service == WORKER and span.name == "run/bill" for span in collector.spans()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write what the collector has received")
    args = parser.parse_args()
    for name in NEEDED:
        if find_spec(name) is None:
            parser.error(f"the package of {name} is missing")
    collector = Collector()
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="twistmq-") as name, servers(
            Path(name) / "data") as running:
        _run_programs(Path(name), running.namesrv, collector.url, collector)
    collector.shutdown()
    if args.json:
        args.json.write_text(json.dumps(collector.requests, indent=1))
    spans = collector.spans()
    trace_id = next(span.trace_id for span in spans if span.name == "run/bill")
    joined = [span for span in spans if span.trace_id == trace_id]
    print(f"trace {trace_id}:")
    print("\n".join(picture(joined)))
    ids = {span.span_id for span in joined}
    roots = [span for span in joined if span.parent_id not in ids]
    services = {span.service for span in joined}
    return 0 if services == {JAVA, CONSUMER, WORKER} and [each.service for each in roots] == [
        JAVA] else 1


if __name__ == "__main__":
    raise SystemExit(main())
