"""A client of Spark Connect in a process of its own, which starts a local server for itself.

    python -m tests.spark_bridge.connect_job NAME_SERVER FOLDER

writes, reads and streams by the format, sends the package to the executors, and prints what came of
each as JSON. A process has either such a session or a classic one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.spark_bridge.session import CONF

__all__ = ["ROWS"]

ROWS = 40


def package_folders(batches: Iterator[Any]) -> Iterator[Any]:
    """On an executor: the folders on Python's path that hold the package that was sent."""
    import pyarrow as pa

    list(batches)
    found = [path for path in sys.path if Path(path, "twistmq/spark_bridge/lag.py").is_file()
             and not Path(path, "twistmq/plugins").exists()]
    yield pa.RecordBatch.from_pydict({"count": [len(found)]})


def run(spark: Any, name_server: str, folder: Path) -> dict[str, Any]:
    """Use the format in each way; :returns: what came of it."""
    from twistmq.spark_bridge.executor_archive import send_package
    from twistmq.spark_bridge.lag import query_lag

    options = {"nameServer": name_server}
    found: dict[str, Any] = {"session": type(spark).__module__}
    spark.range(ROWS).selectExpr("cast(id AS string) AS body").write.format("rocketmq").options(
        **options, topic="connect").mode("append").save()
    frame = spark.read.format("rocketmq").options(
        **options, subscribe="connect", bodyFormat="string").load()
    found["batch"] = sorted(int(row.body) for row in frame.select("body").collect())
    query = spark.readStream.format("rocketmq").options(
        **options, subscribe="connect", startingOffsets="earliest").load().select(
        "queueOffset").writeStream.format("parquet").option(
        "checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start(
        str(folder / "output"))
    found["ended"] = query.awaitTermination(120)
    # Over Connect a progress says of its sources only how many rows there were.
    done = [each for each in query.recentProgress if each["sources"][0]["numInputRows"]]
    found["stream"] = sum(each["sources"][0]["numInputRows"] for each in done)
    lags = [query_lag(each) for each in done]
    found["lag"] = [lag.total if lag else None for lag in lags]
    try:
        spark.read.format("rocketmq").options(**options, subscribe="connect",
                                              startingOffset="x").load().count()
    except Exception as error:
        found["error"] = "there is no such option; startingOffsets is one" in str(error)
    send_package(spark)
    found["packages"] = [row["count"] for row in spark.range(0, 1, 1, 1).mapInArrow(
        package_folders, "count bigint").collect()]
    return found


def main(arguments: list[str]) -> int:
    name_server, folder = arguments
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1",
                      # Spark's own word for a server with a port that the system chooses.
                      SPARK_TESTING="1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]")
    for name, value in {**CONF, "spark.sql.warehouse.dir": folder,
                        "spark.local.dir": folder}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    print(json.dumps(run(spark, name_server, Path(folder))))
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
