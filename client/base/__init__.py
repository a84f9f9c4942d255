"""The objects that a program holds: messages, results, codecs, interceptors and errors."""
