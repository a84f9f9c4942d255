"""Reads the requests at the port for members, and answers or refuses them.

A refusal has the form that Apache's members give it: a body that cannot be read is answered by the
remoting code SYSTEM_ERROR, an unknown code by REQUEST_CODE_NOT_SUPPORTED, and a request for another
group or member by a body with its code.

Source: DLedgerRpcNettyService, DLedgerServer @0.3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import UNSET
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.api import ResponseCode
from twistmq.broker.api.wire import Frame, RemotingCommand, decode_command, sketch
from twistmq.plugins.dledger.incoming_link import IncomingLink
from twistmq.plugins.dledger.peer_group import PeerGroup
from twistmq.plugins.dledger.push_joiner import PushJoiner, ReceivedPush
from twistmq.plugins.dledger.translation import (
    READERS,
    read_request,
    write_refusal,
    write_response,
)
from twistmq.plugins.replica.host_lines import HostLines
from twistmq.protocol.bodies.dledger import ANSWER_CODE, MetadataRequest, MetadataResponse
from twistmq.protocol.codes import DLedgerRequestCode
from twistmq.protocol.errors import HeaderError, WireError
from twistmq.protocol.printable import one_line
from twistmq.raft import messages
from twistmq.raft.messages import PushRequest, PushType, Request, Response, TransferRequest

__all__ = ["PeerRequests"]

#: The requests of Apache's client that do not suit a log of messages: it would append bytes that
#: are not a message, and read messages without the permission to do so.
_CLOSED: Final = (DLedgerRequestCode.APPEND, DLedgerRequestCode.GET, DLedgerRequestCode.PULL)
#: The largest number of characters of a reason in a log line; it may contain a text of the peer.
_SHOWN_MAX: Final = 200


class PeerRequests:
    """The requests over all connections of the port.

    :param answer: returns the response to a sound request; it fails if no response follows.
    :param find_leader: returns the id of the current leader, or an empty text.
    :param say: limits the log lines.
    """

    log = Logger()

    def __init__(
        self, group: PeerGroup, answer: Callable[[Request], Deferred[Response]],
        find_leader: Callable[[], str], say: HostLines,
    ) -> None:
        self._group = group
        self._answer = answer
        self._find_leader = find_leader
        self._say = say
        self._pushes = PushJoiner(answer)

    def pass_on_pushes(self) -> None:
        """Pass on the pushes that waited for further ones of the same connection."""
        self._pushes.pass_on()

    def handle_frame(self, link: IncomingLink, frame: Frame) -> None:
        """Answer a frame, at once or later. Pushes of entries wait until ``pass_on_pushes``."""
        try:
            command = decode_command(frame)
        except HeaderError as error:
            opaque = sketch(frame).opaque
            if opaque is not None:
                link.reply(ResponseCode.SYSTEM_ERROR, opaque, remark=str(error))
            self._warn(link, str(error))
            return
        if command.is_response:
            self._warn(link, "it is a response, and this member has asked nothing there")
            return
        try:
            self._handle_command(link, command)
        except WireError as error:
            self._refuse(link, command, ResponseCode.SYSTEM_ERROR, str(error))

    def _handle_command(self, link: IncomingLink, command: RemotingCommand) -> None:
        """:raises WireError: when the body is not sound."""
        if command.code in READERS:
            self._handle_message(link, command, read_request(command.code, command.body))
        elif command.code == DLedgerRequestCode.METADATA:
            self._describe_group(link, command)
        elif command.code in _CLOSED:
            name = DLedgerRequestCode(command.code).name
            self._refuse(link, command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                         f"{name} is not for a log of messages")
        else:
            self._refuse(link, command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                         f"the request code {command.code} is not one of a member")

    def _refuse(
        self, link: IncomingLink, command: RemotingCommand, code: ResponseCode, why: str
    ) -> None:
        """Answer a request that is not the protocol of members."""
        if not command.is_oneway:
            link.reply(code, command.opaque, remark=why)
        self._warn(link, why)

    def _warn(self, link: IncomingLink, why: str) -> None:
        self._say.write(self.log.warn, link.peer,
                        "a request of {peer} at the port for members is refused: {why}",
                        why=one_line(why[:_SHOWN_MAX]))

    # --- messages of members

    def _handle_message(
        self, link: IncomingLink, command: RemotingCommand, request: Request
    ) -> None:
        group = self._group
        if request.receiver != group.member_id:
            code = messages.ResponseCode.UNKNOWN_MEMBER
            why = f"it is for the member {request.receiver}, and this is {group.member_id}"
        elif request.group != group.name:
            code = messages.ResponseCode.UNKNOWN_GROUP
            why = f"it is for the group {request.group}, and this is {group.name}"
        elif not group.is_peer(request.sender) and not isinstance(request, TransferRequest):
            # A tool with which an operator asks for a transfer is not a member.
            code = messages.ResponseCode.UNKNOWN_MEMBER
            why = f"it is from the member {request.sender}, which is not another one of this group"
        else:
            if group.is_peer(request.sender):
                link.member = request.sender
            self._pass_on(link, command, request)
            return
        if not command.is_oneway:
            body = write_refusal(request, code, self._find_leader())
            link.reply(ANSWER_CODE, command.opaque, body)
        self._warn(link, why)

    def _pass_on(self, link: IncomingLink, command: RemotingCommand, request: Request) -> None:
        """Let the core answer a request, and send the response."""
        size, opaque, is_oneway = len(command.body), command.opaque, command.is_oneway
        if isinstance(request, PushRequest) and request.type is PushType.APPEND:
            self._pushes.add(ReceivedPush(link, opaque, size, is_oneway, request))
            return
        self._pushes.pass_on()

        def send(response: Response) -> None:
            link.question_ended(size)
            if not is_oneway:
                link.reply(ANSWER_CODE, opaque, write_response(request, response))

        link.question_arrived(size)
        self._answer(request).addCallbacks(send, lambda _: link.question_ended(size))

    # --- Apache's client

    def _describe_group(self, link: IncomingLink, command: RemotingCommand) -> None:
        """:raises WireError: when the body is not sound."""
        asked = MetadataRequest.decode(command.body)
        group = self._group
        body = MetadataResponse(group=group.name)
        if asked.remote_id != group.member_id:
            body.code = messages.ResponseCode.UNKNOWN_MEMBER.value
        elif asked.group != group.name:
            body.code = messages.ResponseCode.UNKNOWN_GROUP.value
        else:
            body.peers = dict(group.addresses)
        body.leader_id = self._find_leader() or UNSET
        link.reply(ANSWER_CODE, command.opaque, body.encode())
