"""A member that pops: its receipts, acknowledgements and times of invisibility."""
