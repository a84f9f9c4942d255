"""The logs of a master and of its slave, in tests without connections."""

from __future__ import annotations

from twistmq.broker.testing.kernel import KernelBox

__all__ = ["copy_log"]


def copy_log(slave: KernelBox, master: KernelBox) -> None:
    """Give a slave the bytes of the log that it lacks, and make them readable."""
    ours, theirs = slave.kernel.store, master.kernel.store
    while ours.commit_log.max_offset < theirs.commit_log.max_offset:
        offset = ours.commit_log.max_offset
        ours.raw.append(offset, theirs.raw.read(offset, 32_768))
    while ours.dispatch.step():
        pass
