"""Replication between master and slave, as Apache's brokers do it: the stream as bytes.

Source: DefaultHAService, DefaultHAConnection, DefaultHAClient @4.9.4 and @5.3.3.
"""
