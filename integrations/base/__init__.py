"""The parts that the integrations of task queues share: the reading and the hiding of messages."""
