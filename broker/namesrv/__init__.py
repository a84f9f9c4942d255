"""The name server: routes, registration, expiry, key-value configuration."""
