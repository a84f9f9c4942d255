"""Makes ``format("rocketmq_trace")`` known to Spark.

Spark imports every top-level module named ``pyspark_*`` and registers its ``DefaultSource``, so
that nothing has to be registered by hand. It does so for each session: this stays light.
"""

from twistmq.spark_bridge.trace_source import TraceSource as DefaultSource

__all__ = ["DefaultSource"]
