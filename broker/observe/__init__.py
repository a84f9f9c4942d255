"""Statistics and metrics of a broker, and the log lines about slow requests."""
