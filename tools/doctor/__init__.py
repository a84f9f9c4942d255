"""``twistmq doctor``: finding faults in a set-up, before its start or while it runs."""
