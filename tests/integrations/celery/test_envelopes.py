"""The bodies of the broker's messages."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.client import Undecodable
from twistmq.integrations.celery.envelopes import (
    bytes_of,
    due_time,
    envelope_of,
    expiry,
    search_key,
    set_expiry,
)


def envelope(headers: dict[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    """Return a message of kombu."""
    return {"body": "{}", "headers": headers or {},
            "properties": {"delivery_info": {"exchange": "", "routing_key": "q"}, **properties}}


class EnvelopeTests(SynchronousTestCase):
    """Bodies, times and keys."""

    def test_an_envelope_is_read_as_it_was_written(self) -> None:
        """Headers may be of any type that kombu's JSON knows."""
        written = envelope({"eta": datetime(2026, 1, 2, tzinfo=UTC), "id": "t"}, priority=3)
        self.assertEqual(envelope_of(bytes_of(written)), written)

    def test_another_body_is_refused(self) -> None:
        """It is not JSON, not an object, or has no delivery information."""
        for body in (b"", b"paid", b"[]", b"{}", b'{"properties": {"delivery_info": 3}}', b"\xff"):
            self.assertRaises(Undecodable, envelope_of, body)

    def test_a_body_on_which_a_reader_would_fail_is_refused(self) -> None:
        """A member has another type, kombu's decoder fails, or the values are nested too deeply."""
        whole = envelope_of(bytes_of(envelope(expiration="2000")))
        for faults in (
                {"headers": [1]}, {"headers": "x"}, {"expires": "soon"}, {"expires": 10**400},
                {"body": 5}, {"body": ["x"]}, {"content-type": 5}, {"content-encoding": {}}):
            self.assertRaises(Undecodable, envelope_of, bytes_of({**whole, **faults}))
        info = whole["properties"]["delivery_info"]
        for properties in (
                {"delivery_info": {"routing_key": 5}}, {"delivery_info": {"exchange": []}},
                {"delivery_info": info, "body_encoding": "rot13"},
                {"delivery_info": info, "body_encoding": 5},
                {"delivery_info": info, "body_encoding": "base64"},
                {"delivery_info": info, "expiration": "soon"}):
            body = bytes_of({**whole, "body": "x", "properties": properties})
            self.assertRaises(Undecodable, envelope_of, body)
        typed = '{"__type__": "%s", "__value__": %s}'
        for value in (typed % ("decimal", '"x"'), typed % ("bytes", "5"), typed % ("uuid", "[]"),
                      "[" * 20_000 + "]" * 20_000, "9" * 5_000):
            self.assertRaises(Undecodable, envelope_of, b'{"headers": {"a": %s}, "body": "x", '
                              b'"properties": {"delivery_info": {}}}' % value.encode())

    def test_the_time_of_a_task(self) -> None:
        """The time is ISO 8601, which is UTC without a zone; other values are left to Celery."""
        expected = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
        for eta in ("2026-01-02T00:00:00", "2026-01-02T00:00:00+00:00", "2026-01-02T01:00:00+01:00",
                    "2026-01-02T00:00:00Z", datetime(2026, 1, 2, tzinfo=UTC)):
            self.assertEqual(due_time(envelope({"eta": eta})), expected)
        for eta in (None, "soon", "", 17, []):
            self.assertIsNone(due_time(envelope({"eta": eta})))
        self.assertIsNone(due_time({"headers": None}))

    def test_an_expiration_counts_from_the_first_send(self) -> None:
        """A message that is sent again keeps its time."""
        message = envelope(expiration="2000")
        before = time.time()
        set_expiry(message)
        self.assertTrue(before + 2 <= expiry(message) <= time.time() + 2)
        expires = expiry(message)
        message["properties"]["expiration"] = "90000"
        set_expiry(message)
        self.assertEqual(expiry(message), expires)
        self.assertEqual(expiry(envelope()), float("inf"))

    def test_a_task_is_found_by_its_id(self) -> None:
        """The id is a key only if it is valid as one."""
        self.assertEqual(search_key(envelope({"id": "t-17"})), ["t-17"])
        self.assertEqual(search_key(envelope(correlation_id="c-3")), ["c-3"])
        for task_id in (None, "", "two words", "x" * 200, 17, "ä"):
            self.assertEqual(search_key(envelope({"id": task_id})), [])
