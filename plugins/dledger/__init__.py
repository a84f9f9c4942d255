"""The parts of a broker that is a member of a group: its log, its disk, and its node.

The members of a group agree on one log by Raft, in the dialect of Apache's DLedger
(``twistmq.raft``).
"""
