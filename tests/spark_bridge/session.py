"""The one SparkSession of a test run, or the reason why there is none.

Starting one takes ten seconds, so all tests share it: two cores of this machine, no web pages. It
is stopped when the process ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.interop.peer import SHORT_LIVED
from tests.interop.servers import wait_until

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["CONF", "WAIT_SECONDS", "begun", "missing_for_spark", "run_to_end",
           "spark_session"]

#: Bound on what a query is waited for. It takes ten seconds to start on a machine that has nothing
#: else to do, and minutes on a busy one.
WAIT_SECONDS = 240.0

#: What every session of a test is set to.
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": " ".join(SHORT_LIVED),
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "OFF",
}


def run_to_end(start: Callable[[], Any]) -> Any:
    """Start a query that ends, and wait until it has; :returns: it."""
    query = begun(start, lambda query: False)
    if not query.awaitTermination(int(WAIT_SECONDS)):
        raise AssertionError("the query does not end")
    return query


def begun(start: Callable[[], Any], has_begun: Callable[[Any], bool]) -> Any:
    """Start a query, and wait until a condition holds or it has ended; :returns: it.

    One whose Python worker came too late has done nothing: it starts again, as an export's does.
    """
    # This module imports Spark, and the tests that skip without Spark import the one here.
    from twistmq.spark_bridge.export_job import NO_WORKER, STARTS

    for _ in range(STARTS):
        query = start()
        wait_until("the query begins", lambda query=query: (
            not query.isActive or has_begun(query)), WAIT_SECONDS)
        error = query.exception()
        if error is None or NO_WORKER not in str(error):
            return query
    raise AssertionError(f"{NO_WORKER}, {STARTS} times")


@cache
def _missing() -> str:
    """Why there can be no session; "" when there can."""
    if shutil.which("java") is None:
        return "Spark needs Java, and there is no java"
    try:
        import pyarrow
        import pyspark
    except ImportError as error:
        return f"the extra spark is not installed: {error}"
    del pyarrow, pyspark
    return ""


def missing_for_spark() -> None:
    """Return normally if a session is possible; :raises SkipTest: with the reason otherwise."""
    reason = _missing()
    if reason:
        raise SkipTest(reason)


def spark_session() -> Any:
    """Return the session; :raises SkipTest: with the reason if there is none."""
    missing_for_spark()
    return _started()


@cache
def _started() -> Any:
    from pyspark.sql import SparkSession

    # Workers would run the python3 of the path, which may be another environment's.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    folder = tempfile.mkdtemp(prefix="twistmq-spark-")
    builder = SparkSession.builder.master("local[2]").appName("twistmq tests")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    session = builder.config("spark.sql.warehouse.dir", folder).config(
        "spark.local.dir", folder).getOrCreate()

    def stop() -> None:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    return session
