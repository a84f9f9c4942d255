"""Makes ``format("rocketmq_trace")`` known to Spark.

Spark imports every top-level module named ``pyspark_*`` and registers its ``DefaultSource``, so
that nothing has to be registered by hand. It does so for each session: this stays light. An
exception here would hide all such sources, so that none is raised.
"""

from typing import Any

DefaultSource: Any
try:
    from twistmq.spark_bridge.trace_source import TraceSource as DefaultSource
except Exception as error:
    from twistmq.spark_bridge.unsuitable import unsuitable_source

    DefaultSource = unsuitable_source("rocketmq_trace", error)
    if DefaultSource is None:
        del DefaultSource

__all__ = ["DefaultSource"]
