"""Settings: their rows, the parsers of files, and the checks of a start."""
