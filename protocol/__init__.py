"""The wire, sans-IO: frames, both header encodings, header tables, message records, ids."""
