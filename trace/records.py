"""The former place of a module; importing it reports the new place."""

raise ImportError("twistmq.trace.records has moved to twistmq.protocol.trace_records")
