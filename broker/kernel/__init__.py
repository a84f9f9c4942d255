"""The kernel: its parts, their inputs, and the tables that they share."""
