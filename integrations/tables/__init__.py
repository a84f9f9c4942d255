"""Messages and trace events as Arrow record batches, for the Spark bridge and for Arrow's users.

The modules read topics, through brokers, and the commit-log files of a store. They import pyarrow
and numpy, and never Spark.
"""
