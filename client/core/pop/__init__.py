"""A member that pops: its receipts, acknowledgements and invisible times."""
