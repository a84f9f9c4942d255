"""The parts that plugins for replication share; this folder provides no plugin of its own.

A replica copies tables of its master, forwards commits to it, and refuses changes of these tables.
"""
