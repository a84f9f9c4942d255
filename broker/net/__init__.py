"""Bytes in and out: listening ports, connections, TLS, the PROXY protocol, the run queue."""
