"""Every request's header and its answer's header; ``table`` has them by request code.

One class stands for one header: its fields, their wire names and types, and what is required.
Both encodings, validation and the test strategies derive from it. A field is required where
Apache's class marks it so and gives it no value of its own.

Differs from Apache: a required field that is missing refuses the request, because Apache 5.3.3
enforces its marks for four headers only and fails later on the others.

Source: remoting/protocol/header and the processors @5.3.3; protocol notes 1.
"""
