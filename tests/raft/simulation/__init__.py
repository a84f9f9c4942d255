"""A simulation of Raft groups: the whole world of a few members in one process, by one seed."""
