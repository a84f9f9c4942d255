"""Connections: bytes, requests and replies, routes, and what all of a client shares."""
