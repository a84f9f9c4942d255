"""The former place of a module, for programs that still import it from here."""

raise ImportError("twistmq.broker.wire has moved to twistmq.protocol")
