"""A member of a consumer group: its queues, the messages that it reads, and its offsets."""
