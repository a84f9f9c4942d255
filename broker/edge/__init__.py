"""The reactor's edge: protocol, factory, services, command line."""
