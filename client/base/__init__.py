"""What a program sends, reads and catches: messages, answers, codecs, interceptors, errors."""
