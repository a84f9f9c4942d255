"""The part of the client that does no I/O and reads no clock: bytes and times in, bytes out."""
