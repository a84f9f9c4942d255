"""Requests and replies as handlers see them, and the dispatcher that calls the handlers."""
