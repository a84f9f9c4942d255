"""The kernel's own requests: send, pull, offsets, clients, topics and groups, queries."""
