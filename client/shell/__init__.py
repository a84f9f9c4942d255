"""What all shells share: options, the cores that are made of them, identities, TLS."""
