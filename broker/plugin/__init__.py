"""Plugins: the specifications of hooks, discovery, and the module that calls the hooks."""
