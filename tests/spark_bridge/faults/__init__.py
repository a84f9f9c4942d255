"""Queries of Spark while brokers, topics and drivers come and go, and what must come of it.

``python -m tests.long.spark_faults`` runs it for long, ``tests/spark_bridge/test_faults.py`` for
less than a minute.
"""
