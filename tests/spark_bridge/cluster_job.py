"""A program of Spark on a cluster's master: rows to a topic, and back, and into Parquet.

    python -m tests.spark_bridge.cluster_job NAME_SERVER OUTPUT [KEY=VALUE ...]

The master, local-cluster[2,1,1024], starts two executors as processes of their own, as those of a
cluster are. The settings are Spark's. Prints JSON of what the executors are and of what was read.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from twistmq.spark_bridge.export_plan import ExportPlan

__all__ = ["ROWS"]

ROWS = 300


def where(_: int) -> tuple[str, str]:
    """The interpreter this runs in, and where it has the bridge from."""
    import sys

    import twistmq.spark_bridge.source as source

    return sys.executable, str(source.__file__)


def main(arguments: list[str]) -> int:
    # This module imports Spark, which may be missing where a test reads only the rows above.
    from twistmq.spark_bridge.export_job import ExportJob, make_session

    name_server, output, *settings = arguments
    plan = ExportPlan({"nameServer": name_server}, ("orders",), False, output,
                      master="local-cluster[2,1,1024]",
                      conf=dict(setting.split("=", 1) for setting in settings))
    session: Any = make_session(plan)
    # Executors have no module "tests".
    where.__module__ = "__main__"
    tasks = session.sparkContext.parallelize(range(8), 8)
    executors = sorted(tasks.map(where).distinct().collect())
    options = {"nameServer": name_server}
    session.range(0, ROWS, 1, 4).selectExpr("string(id) AS body").write.format(
        "rocketmq").options(**options, topic="orders").mode("append").save()
    rows = session.read.format("rocketmq").options(
        **options, subscribe="orders", minPartitions="4").load().collect()
    [table] = ExportJob(plan, session, lambda done, waiting: None).run()
    session.stop()
    print(json.dumps({"executors": executors, "rows": sorted(int(row.body) for row in rows),
                      "exported": table.rows}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
