"""The common parts of all shells: options, the cores made of them, identities, TLS."""
