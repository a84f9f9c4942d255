"""The producer: outgoing messages, choices of queues, attempts, transactions."""
