"""Public test doubles: a broker in process, a memory disk, a disk with faults."""
