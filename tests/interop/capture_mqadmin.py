"""Keep the output of mqadmin 5.3.3 for Apache's broker on the tour of admin_tour.py.

tests/interop/test_mqadmin.py compares the two brokers live; these texts show what is expected to a
reader, and where there is no Java.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.interop.admin_tour import tour
from tests.interop.gallery import Gallery
from tests.interop.peer import Peer

__all__ = ["capture_mqadmin"]

#: A longer output is one line for each of many queues or settings, bytes.
OUTPUT_SIZE_MAX: Final = 10_000


def capture_mqadmin(folder: Path, first_port: int) -> None:
    """Write tests/golden/mqadmin, a file for each command; ``folder`` is for the peer's data."""
    broker = f"127.0.0.1:{first_port + 1035}"
    peer = Peer(folder, namesrv_port=first_port, broker_port=first_port + 1035, heap="512m",
                settings={"brokerName": "broker-a"})
    gallery = Gallery("mqadmin", f"{__doc__} The broker is {broker}.")
    peer.start()
    try:
        outputs = tour(peer.namesrv_address, broker)
    finally:
        peer.stop()
    for name, output in outputs.items():
        if len(output) > OUTPUT_SIZE_MAX:
            continue
        file = name.replace(" -", "-").replace(" ", "-") + ".txt"
        gallery.add(file, output.encode(), f"{name}, by its name in admin_tour.py")
    gallery.close()
