"""The formats in Spark Connect, with a server on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.connect_job import ROWS
from tests.spark_bridge.session import ROOT, WAIT_SECONDS, missing_for_spark
from twistmq.broker.testing import running_broker
from twistmq.spark_bridge.executor_archive import send_package
from twistmq.spark_bridge.spark_api import HAS_READ_LIMITS


class ConnectTests(SynchronousTestCase):
    """A client without its own JVM."""

    def test_every_use(self) -> None:
        """A job has a batch, a stream, its lag, an error, and the package on the executors."""
        missing_for_spark()
        try:
            import pyspark.sql.connect.session  # noqa: F401
        except ImportError as error:
            raise SkipTest(f"the extra connect is not installed, of PySpark: {error}") from None
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        folder.mkdir()
        with running_broker({"brokerName": "broker-a"}) as broker:
            done = subprocess.run(
                [sys.executable, "-m", "tests.spark_bridge.connect_job", broker.namesrv_address,
                 str(folder)], cwd=ROOT, timeout=2 * WAIT_SECONDS, capture_output=True, text=True,
                check=False)
        self.assertEqual(done.returncode, 0, msg=done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(found, {
            "session": "pyspark.sql.connect.session", "batch": list(range(ROWS)), "ended": True,
            "error": True,
            "stream": ROWS, "lag": [0 if HAS_READ_LIMITS else None], "packages": [1]})

    def test_how_the_package_is_sent(self) -> None:
        """It is an artifact if the session has no context of Spark; otherwise the
        context sends it.
        """
        remote = mock.Mock(spec=["addArtifacts"])
        send_package(remote)
        [call] = remote.addArtifacts.call_args_list
        [path] = call.args
        self.assertEqual(call.kwargs, {"archive": True})
        self.assertTrue(path.endswith("twistmq.zip#twistmq"))
        self.assertTrue(Path(path.partition("#")[0]).is_file())
        classic = mock.Mock(spec=["addArtifacts", "sparkContext"])
        send_package(classic)
        self.assertEqual(classic.addArtifacts.call_count, 0)
        [call] = classic.sparkContext.addArchive.call_args_list
        self.assertTrue(call.args[0].endswith("twistmq.zip#twistmq"))
