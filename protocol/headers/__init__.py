"""The headers of all requests and responses; ``table`` lists them by request code.

One class describes one header: its fields, their wire names and types, and which are required. Both
encodings, the validation and the test strategies are derived from it. A field is required if
Apache's class marks it as required and gives it no initial value.

Differs from Apache: a request is refused if a required field is missing. Apache 5.3.3 enforces its
marks for only four headers, and fails later for the other ones.

Source: remoting/protocol/header and the processors @5.3.3; protocol notes 1.
"""
