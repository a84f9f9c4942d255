"""The shell that the event loops share; ``twistmq.client.aio`` and ``tx`` complete it."""
