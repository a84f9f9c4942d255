"""The parts that all shells share: options, the cores built from them, identities, TLS."""
