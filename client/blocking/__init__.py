"""The blocking client: for threads, over one thread with the sockets of a process."""
