"""Keep the metrics that Apache's broker 5.3.3 has for Prometheus after metrics_workload.py."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.interop.gallery import Gallery
from tests.interop.metrics_workload import Workload, scrape, series_of
from tests.interop.peer import Peer
from twistmq.broker.testing import RawClient

__all__ = ["capture_metrics"]


def capture_metrics(folder: Path, first_port: int) -> None:
    """Write tests/golden/metrics; ``folder`` is for the peer's data."""
    broker_port, port = first_port + 1035, first_port + 1
    peer = Peer(folder, namesrv_port=first_port, broker_port=broker_port, heap="512m", settings={
        "metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": str(port), "metricsLabel": "zone:a,rack:b"})
    peer.start()
    try:
        with RawClient(f"127.0.0.1:{broker_port}") as client:
            Workload(client).run()
            # Timed messages are entered, and what was popped is noted, every second.
            time.sleep(3)
            series = series_of(scrape(f"http://127.0.0.1:{port}/metrics"))
    finally:
        peer.stop()
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(series[name])}" for name in sorted(series))
    gallery = Gallery("metrics", f"{__doc__} metricsLabel=zone:a,rack:b.")
    gallery.add("series.json", f"{{{rows}}}\n".encode(), "name to kind and labels")
    gallery.close()
