"""A group of brokers that agrees on one log in the dialect of Apache's DLedger."""
