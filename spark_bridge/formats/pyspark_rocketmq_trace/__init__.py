"""Makes ``format("rocketmq_trace")`` known to Spark.

Spark imports every top-level module with a name like ``pyspark_*`` and registers its
``DefaultSource``, so users do not have to register the format themselves. Spark does this for each
session, so this module must load quickly. An exception here would hide all such sources, including
the sources of other packages, so the module never raises one.
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
