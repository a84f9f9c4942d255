"""The producer: messages on their way out, choices of queues, attempts, transactions."""
