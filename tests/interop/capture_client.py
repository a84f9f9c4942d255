"""Capture the choices and ids that Apache's Java client makes without a server.

These are allocations of queues to members by each strategy, queues chosen by a hash of a key, and
compressed bodies. The Java programs ``Allocations``, ``HashChoices`` and ``Compression`` of
tests/interop/java ask the classes of the client 5.3.3 for them; each says in its first comment how
its lines are to be read.
"""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Final

from tests.interop.clients import java_program
from tests.interop.gallery import Gallery

__all__ = ["capture_client"]

_VERSION: Final = "5.3.3"
_CASES: Final = 5000
_KEYS: Final = 500
#: Of the random numbers: another capture is the same.
_SEED: Final = 20


def capture_client(folder: Path, first_port: int) -> None:
    """Write tests/golden/client; neither a folder nor a port is needed."""
    gallery = Gallery("client", f"{__doc__} Seed {_SEED}.")
    cases = java_program(_VERSION, "Allocations", str(_CASES), str(_SEED))
    gallery.add("allocations.jsonl.xz", lzma.compress(cases.encode(), preset=9),
                f"{_CASES} cases with the shares of every member by six strategies")
    choices = java_program(_VERSION, "HashChoices", str(_KEYS), str(_SEED))
    gallery.add("hash-choices.tsv", choices.encode(), "key, number of queues, chosen queue")
    bodies = java_program(_VERSION, "Compression", "write")
    gallery.add("bodies.txt.xz", lzma.compress(bodies.encode(), preset=9),
                "type, level, size and base 64 of compressed bodies")
    gallery.close()
