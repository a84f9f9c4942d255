"""The former place of a module, for programs that still import it from here."""

raise ImportError("twistmq.trace.records has moved to twistmq.protocol.trace_records")
