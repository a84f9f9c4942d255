"""The objects that a program holds: messages, answers, codecs, interceptors and errors."""
