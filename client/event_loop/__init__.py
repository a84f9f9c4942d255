"""The shell of event loops, once: ``twistmq.client.aio`` and ``twistmq.client.tx`` complete it."""
