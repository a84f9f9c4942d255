"""The former place of a module, for programs that still import it from here."""

raise ImportError("twistmq.broker.topic_names has moved to twistmq.protocol.topic_names")
