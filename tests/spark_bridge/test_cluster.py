"""Spark executors that have the dependencies of twistmq, and receive twistmq from the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge.cluster_job import ROWS
from tests.spark_bridge.session import CONF, ROOT, missing_for_spark
from twistmq.broker.testing import running_broker

#: Half a minute on a machine that has nothing else to do.
WAIT_SECONDS = 480.0
#: Names in site-packages that are of this project.
OURS = ("twistmq", "pyspark_rocketmq", "__editable__")


class ClusterTests(SynchronousTestCase):
    """A master with executors in processes of their own."""

    def setUp(self) -> None:
        missing_for_spark()
        self.folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.folder.mkdir()

    def bare_python(self) -> Path:
        """Return an interpreter with all installed packages but ours."""
        venv.create(self.folder / "bare", symlinks=True)
        [site] = (self.folder / "bare").glob("lib/python*/site-packages")
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not path.name.startswith(OURS) and not (site / path.name).exists():
                (site / path.name).symlink_to(path)
        return self.folder / "bare/bin/python"

    def python_of_both(self, bare: Path) -> Path:
        """A command that is the bare interpreter for executors, and this one for the driver."""
        path = self.folder / "python"
        path.write_text(f'#!/bin/sh\n[ -n "$ELSEWHERE" ] && exec {bare} "$@"\n'
                        f'exec {sys.executable} "$@"\n')
        path.chmod(0o755)
        return path

    def long_sent(self) -> None:
        """Tasks that write and read run from the archive; so does the export."""
        bare = self.bare_python()
        ran = subprocess.run([bare, "-c", "import msgspec, pyarrow, twistmq.broker"], text=True,
                             capture_output=True, timeout=60, check=False)
        self.assertIn("No module named 'twistmq'", ran.stderr)
        conf = {**CONF, "spark.executorEnv.ELSEWHERE": "1", "spark.executor.memory": "1g",
                "spark.local.dir": str(self.folder / "local")}
        with running_broker() as broker:
            ran = subprocess.run(
                [sys.executable, "-m", "tests.spark_bridge.cluster_job", broker.namesrv_address,
                 str(self.folder / "out"), *(f"{key}={value}" for key, value in conf.items())],
                cwd=ROOT, text=True, capture_output=True, timeout=WAIT_SECONDS, check=False,
                env={**os.environ, "PYSPARK_PYTHON": str(self.python_of_both(bare)),
                     "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(self.folder / "work")})
        self.assertEqual(ran.returncode, 0, msg=ran.stderr[-3000:])
        found = json.loads(ran.stdout.splitlines()[-1])
        self.assertEqual((found["rows"], found["exported"]), (list(range(ROWS)), ROWS))
        for interpreter, source in found["executors"]:
            self.assertEqual(interpreter, str(bare))
            self.assertNotIn("site-packages/twistmq", source)
