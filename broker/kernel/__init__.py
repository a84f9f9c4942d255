"""The kernel: its parts, what they are given, and the tables they share."""
