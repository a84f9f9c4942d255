"""Capture all data of tests/golden from Apache RocketMQ 5.3.3 again.

    python -m tests.interop.capture_golden [frames] [store-edges] [store-batch] [extension]
        [filter] [metrics] [mqadmin] [mqadmin-options] [trace]
        [client] [replication] [dledger] [dledger-frames] [dledger-transcripts]

All parts without an argument. Takes about five minutes and the ports from 29876 on
(``--port`` sets another first one). tests/golden/README.md says what each part holds, and how the
parts that are not captured here were made.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from tests.interop.capture_batch import capture_batch
from tests.interop.capture_client import capture_client
from tests.interop.capture_extension import capture_extension
from tests.interop.capture_filter import capture_filter
from tests.interop.capture_frames import capture_frames
from tests.interop.capture_ledger import capture_ledger
from tests.interop.capture_members import capture_members
from tests.interop.capture_metrics import capture_metrics
from tests.interop.capture_mqadmin import capture_mqadmin
from tests.interop.capture_options import capture_options
from tests.interop.capture_replication import capture_replication
from tests.interop.capture_store import capture_store
from tests.interop.capture_trace import capture_trace
from tests.interop.capture_transcripts import capture_transcripts
from tests.interop.gallery import GOLDEN

PARTS = {"frames": capture_frames, "store-edges": capture_store,
         "store-batch": capture_batch, "extension": capture_extension,
         "filter": capture_filter, "metrics": capture_metrics,
         "mqadmin": capture_mqadmin, "mqadmin-options": capture_options,
         "trace": capture_trace, "client": capture_client,
         "replication": capture_replication, "dledger": capture_ledger,
         "dledger-frames": capture_members, "dledger-transcripts": capture_transcripts}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--port", type=int, default=29876)
    args = parser.parse_args()
    for part in args.parts or PARTS:
        shutil.rmtree(GOLDEN / part, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            PARTS[part](Path(folder), args.port)
        print(f"{part}: captured")


if __name__ == "__main__":
    main()
