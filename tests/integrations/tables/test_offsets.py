"""The texts of offsets and queues."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twistmq.integrations.tables.offsets import (
    offsets_json,
    parse_assign,
    parse_offsets,
    parse_times,
    read_marks,
    read_offsets,
)
from twistmq.integrations.tables.options import OptionError
from twistmq.protocol.bodies import MessageQueue

A0, A10, B0 = (MessageQueue("t", "a", 0), MessageQueue("t", "a", 10), MessageQueue("u", "b", 0))


class OffsetsTests(SynchronousTestCase):
    """The contents of checkpoints and options."""

    def test_a_checkpoint_is_read_back_equal(self) -> None:
        """The offsets are read back equal, and equal offsets have equal texts."""
        value = offsets_json({B0: 5, A10: 1 << 40, A0: 0})
        self.assertEqual(json.dumps(value),
                         '{"t": {"a": {"0": 0, "10": 1099511627776}}, "u": {"b": {"0": 5}}}')
        self.assertEqual(json.dumps(offsets_json({A0: 0, A10: 1 << 40, B0: 5})), json.dumps(value))
        self.assertEqual(read_offsets(value), {A0: 0, A10: 1 << 40, B0: 5})
        marked = json.loads(json.dumps(offsets_json({B0: 5, A0: 0}, {B0: (1 << 40, 17)})))
        self.assertEqual(read_offsets(marked), {B0: 5, A0: 0})
        self.assertEqual(read_marks(marked), {B0: (1 << 40, 17)})
        self.assertEqual(parse_offsets("startingOffsets", json.dumps(marked)), {B0: 5, A0: 0})
        self.assertEqual(read_marks(value), {})
        error = self.assertRaises(OptionError, read_offsets, {"t": {"a": {str(2**61 - 1): 0}}})
        self.assertIn("the checkpoint: topic t, broker a", str(error))

    def test_offsets_with_the_two_that_stand_for_begin_and_end(self) -> None:
        """Offsets, with the numbers for the first and the last one, times and queues are read."""
        text = '{"t":{"a":{"0":-2,"10":-1}},"u":{"b":{"0":7}}}'
        self.assertEqual(parse_offsets("startingOffsets", text), {A0: -2, A10: -1, B0: 7})
        self.assertEqual(parse_times("x", '{"u":{"b":{"0":7}}}'), {B0: 7})
        self.assertEqual(parse_times("x", '{"u":{"b":{"0":"1970-01-01T00:00:01"}}}'), {B0: 1000})
        self.assertEqual(parse_assign('{"u":{"b":[0]},"t":{"a":[10,0,0]}}'), [A0, A10, B0])

    def test_each_error_names_option_topic_and_queue(self) -> None:
        """Each error names the option, and the topic and the queue as far as they could be read."""
        wrong = {
            "{": "not JSON", "[]": "not a JSON object", '{"t":1}': "topic t",
            '{"t":{"a":[0]}}': "topic t, broker a",
            '{"t":{"a":{"x":1}}}': "topic t, broker a: 'x' is not the id of a queue",
            '{"t":{"a":{"-1":1}}}': "'-1' is not the id of a queue",
            '{"t":{"a":{"2147483648":1}}}': "'2147483648' is not the id of a queue",
            '{"t":{"a":{"%s":1}}}' % ("9" * 5000): "is not the id of a queue",
            '{"t":{"a":{"0":-3}}}': "topic t, broker a, queue 0: -3",
            '{"t":{"a":{"0":"5"}}}': "topic t, broker a, queue 0: '5'",
            '{"t":{"a":{"0":true}}}': "queue 0: True",
            '{"t":{"a":{"0":1.5}}}': "queue 0: 1.5",
            '{"t":{"a":{"0":9223372036854775808}}}': "queue 0: 9223372036854775808",
        }
        for text, expected in wrong.items():
            error = str(self.assertRaises(OptionError, parse_offsets, "endingOffsets", text))
            self.assertTrue(error.startswith("option endingOffsets: "), msg=error)
            self.assertIn(expected, error)
        self.assertRaises(OptionError, parse_times, "x", '{"t":{"a":{"0":-1}}}')
        self.assertEqual(str(self.assertRaises(
            OptionError, parse_times, "x", '{"t":{"a":{"0":"now"}}}')),
            "option x: topic t, broker a, queue 0: 'now' is neither ms since 1970 nor ISO 8601")
        for text in ("{}", '{"t":{"a":{"0":1}}}', '{"t":{"a":["x"]}}', '{"t":{"a":[true]}}'):
            error = str(self.assertRaises(OptionError, parse_assign, text))
            self.assertTrue(error.startswith("option assign: "), msg=error)
