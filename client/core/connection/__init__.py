"""Connections: bytes, requests and responses, routes, and the state that a whole client shares."""
