"""The archive from which executors import the bridge."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from twistmq.spark_bridge.executor_archive import write_archive

CODE = """
import sys
sys.path.insert(0, sys.argv[1])
import twistmq.spark_bridge.source, twistmq.spark_bridge.store_source
import twistmq.spark_bridge.trace_source, twistmq.protocol.record
print({module.__file__.startswith(sys.argv[1]) for name, module in sys.modules.items()
       if name.startswith("twistmq.") and getattr(module, "__file__", None)})
print(sorted({"twisted", "click", "twistmq.broker.config.settings"} & set(sys.modules)))
"""


class ArchiveTests(SynchronousTestCase):
    """The content of the archive."""

    def test_it_is_imported_from(self) -> None:
        """An isolated interpreter imports all that tasks need from the archive.

        Nothing is imported that only servers and commands need.
        """
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        folder.mkdir()
        archive = write_archive(folder)
        shutil.unpack_archive(archive, folder / "unpacked/twistmq")
        ran = subprocess.run([sys.executable, "-I", "-c", CODE, str(folder / "unpacked")],
                             text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual((ran.stdout, ran.stderr), ("{True}\n[]\n", ""))
        names = zipfile.ZipFile(archive).namelist()
        self.assertEqual([name for name in names if name.endswith((".so", ".pyc"))], [])
