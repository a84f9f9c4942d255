"""Inspecting a store's files from outside: ``twistmq store check`` and ``twistmq store dump``."""
