"""The wire protocol, sans-IO: frames, both header encodings, header tables, records, ids."""
