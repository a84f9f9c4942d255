"""Joins the pushes of a leader that arrive together, so that they are appended by one write.

A leader of Apache's sends one entry in each push by default, and hundreds of pushes at a time. The
core takes many entries in a push as cheaply as one, so the pushes that are read from a connection
at once become one push for the core. Each of them gets an answer of its own.

If the core refuses the joined push at once, each push is passed on alone, so that a refusal applies
only to the pushes that deserve it. A later response of the core is the answer to all of them.

Source: design of twistmq.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace
from twisted.internet.defer import Deferred

from twistmq.broker.api.wire import encode_reply
from twistmq.plugins.dledger.incoming_link import IncomingLink
from twistmq.plugins.dledger.translation import write_response
from twistmq.protocol.bodies.dledger import ANSWER_CODE
from twistmq.raft.messages import PushRequest, PushResponse, Response, ResponseCode

__all__ = ["JOINED_BYTES_MAX", "PushJoiner", "ReceivedPush"]

#: The largest size of a joined push, in bytes of the requests. The pushes
#: of the core itself have at most as many bytes of bodies.
JOINED_BYTES_MAX: Final = 256 * 1024


class ReceivedPush(NamedTuple):
    """A push that has arrived.

    :param opaque: the number of its request.
    :param size: the bytes of its body.
    """

    link: IncomingLink
    opaque: int
    size: int
    is_oneway: bool
    request: PushRequest

    def reply(self, response: Response) -> bytes:
        """Return the frame of a response; empty if the leader expects none."""
        return b"" if self.is_oneway else encode_reply(
            ANSWER_CODE, self.opaque, None, write_response(self.request, response), None)


class PushJoiner:
    """The pushes that have arrived since the last ``pass_on``.

    :param answer: returns the core's response to a push; it fails if no response follows.
    """

    def __init__(self, answer: Callable[[PushRequest], Deferred[Response]]) -> None:
        self._answer = answer
        self._pushes: list[ReceivedPush] = []
        self._size = 0

    def add(self, push: ReceivedPush) -> None:
        """Keep a push until ``pass_on``; earlier ones that it does not continue are passed on."""
        push.link.question_arrived(push.size)
        if self._pushes and not self._is_next(push):
            self.pass_on()
        self._pushes.append(push)
        self._size += push.size

    def _is_next(self, push: ReceivedPush) -> bool:
        """Return whether a push continues the last one, so that the core may take both as one."""
        last = self._pushes[-1]
        here, before = push.request, last.request
        entry, entry_before = here.entries[0], before.entries[-1]
        return (push.link is last.link and self._size + push.size <= JOINED_BYTES_MAX
                and (here.sender, here.leader, here.term) == (
                    before.sender, before.leader, before.term)
                and entry.index == entry_before.index + 1
                and entry_before.term <= entry.term <= here.term)

    def pass_on(self) -> None:
        """Let the core answer the pushes."""
        pushes, self._pushes = self._pushes, []
        self._size = 0
        if len(pushes) > 1:
            self._pass_joined(pushes)
        elif pushes:
            self._pass_one(pushes[0])

    def _pass_one(self, push: ReceivedPush) -> None:
        def send(response: Response) -> None:
            push.link.question_ended(push.size)
            push.link.send(push.reply(response))

        self._answer(push.request).addCallbacks(
            send, lambda _: push.link.question_ended(push.size))

    def _pass_joined(self, pushes: list[ReceivedPush]) -> None:
        link = pushes[0].link
        is_at_once = True

        def send(response: Response) -> None:
            if is_at_once and response.code is not ResponseCode.SUCCESS:
                for push in pushes:
                    self._pass_one(push)
                return
            end()
            link.send(b"".join(push.reply(_own_response(push.request, response))
                               for push in pushes))

        def end(_: object = None) -> None:
            for push in pushes:
                link.question_ended(push.size)

        joined = replace(
            pushes[-1].request,
            commit_index=max(push.request.commit_index for push in pushes),
            entries=tuple(entry for push in pushes for entry in push.request.entries))
        self._answer(joined).addCallbacks(send, end)
        is_at_once = False


def _own_response(request: PushRequest, response: Response) -> Response:
    """Return the response to one of the pushes that were joined."""
    assert isinstance(response, PushResponse)
    return replace(response, index=request.entries[0].index, count=len(request.entries))
