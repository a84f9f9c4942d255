"""A check of histories: whether the answers that clients of an append-only log got are possible."""
