"""The exploration of a small group: all that can happen to it within bounds, each state once."""
