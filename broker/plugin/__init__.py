"""Plugins: the specifications of hooks, discovery, and the one place that calls them."""
