"""The message store in Apache's file formats."""
