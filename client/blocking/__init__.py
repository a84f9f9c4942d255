"""The blocking client for threads; one thread serves all sockets of a process."""
