"""A member of a consumer group: its queues, what it reads of them, and its offsets."""
