"""Ten thousand mutated bodies of members: each is understood as Java would, or refused."""

from __future__ import annotations

from collections import Counter

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import drawn
from tests.plugins.dledger.mutations import COUNT, KINDS, Mutation, mutate
from tests.plugins.dledger.test_peer_port import PortCase
from twistmq.plugins.dledger.translation import read_request, read_response
from twistmq.protocol.bodies.dledger import DLedgerBody
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import WireError
from twistmq.raft.messages import Request, Response

#: Mutated requests that are sent to a port.
SENT_COUNT = 40


def read_body(mutation: Mutation, data: bytes) -> DLedgerBody | None:
    """Read a body; None: it is refused."""
    try:
        return mutation.body_type.decode(data)
    except WireError:
        return None


def read_message(mutation: Mutation, data: bytes) -> Request | Response | None:
    """Read a body as a message of a group; None: it is refused."""
    try:
        if mutation.is_request:
            return read_request(mutation.code, data)
        return read_response(read_request(mutation.code, mutation.request), data)
    except WireError:
        return None


class MutationTests(SynchronousTestCase):
    """``DLedgerBody.decode``, ``read_request`` and ``read_response``."""

    def test_each_mutation_is_understood_or_refused(self) -> None:
        """No other exception comes out of the reader, and what is understood is right."""
        counts: Counter[str] = Counter()
        understood = 0
        for seed in drawn(range(COUNT)):
            mutation = mutate(seed)
            counts[mutation.kind] += 1
            body = read_body(mutation, mutation.data)
            message = read_message(mutation, mutation.data)
            what = f"seed {seed}, {mutation.kind}: {mutation.data!r}"
            if mutation.is_wild:
                self.assertTrue(body is None or body.decode(body.encode()) == body, msg=what)
                continue
            if mutation.meaning is None:
                self.assertEqual((body, message), (None, None), msg=what)
                continue
            understood += 1
            self.assertIsNotNone(body, msg=what)
            self.assertEqual(body, read_body(mutation, mutation.meaning), msg=what)
            self.assertEqual(message, read_message(mutation, mutation.meaning), msg=what)
        self.assertEqual(counts.keys(), set(KINDS))
        self.assertGreater(understood, sum(counts.values()) // 3)


class PortTests(PortCase):
    """The port for members."""

    def test_each_refusal_has_an_answer_and_one_line(self) -> None:
        """Over a connection that stays open, and nothing is logged beside the refusals."""
        mutations = [mutation for mutation in map(mutate, range(COUNT)) if mutation.is_request]
        client, pipe = self.connect()
        with capturedLogs() as events:
            for mutation in mutations[:SENT_COUNT]:
                self.send(pipe, mutation.code, mutation.data)
        self.assertFalse(client.is_lost)
        replies = self.replies(client)
        refused = [reply for reply in replies if reply.code == ResponseCode.SYSTEM_ERROR]
        wanted = sum(read_message(each, each.data) is None for each in mutations[:SENT_COUNT])
        self.assertEqual(len(refused), wanted)
        self.assertTrue(all(reply.remark for reply in refused))
        lines = self.lines(events)
        self.assertEqual(len(lines), len(events))
        self.assertTrue(all("\n" not in line for line in lines))
