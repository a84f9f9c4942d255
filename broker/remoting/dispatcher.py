"""The way of a request: its code's handler, with access checks and RPC hooks around it.

No more of a request is read than one of its code can need: the handler says how long its header and
its body may be, and what is longer is refused before anything of it is read.

One :class:`Dispatcher` serves a port's whole table ``code -> handler``; name server and broker
use the same one. Replies that are ready leave in one write for each read; a reply that waits is
written alone when it is ready, and never delays other replies: clients match by opaque.

Source: NettyRemotingAbstract.processRequestCommand, buildProcessRequestHandler @5.3.3.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.codes import REFUSED, ResponseCode
from twistmq.broker.constants import (
    BODY_SIZE_MAX,
    DECODED_BYTES_PER_BYTE,
    HEADER_SIZE_MAX,
    HELD_REQUEST_BYTES,
)
from twistmq.broker.errors import BrokerError, HeaderError, ReplyTooLong, RequestRefused
from twistmq.broker.interfaces import IClientValidator, IResourceValidator, IRunValidator
from twistmq.broker.observe.log_rate import EVENTS_A_MINUTE, LimitedLog
from twistmq.broker.remoting.messages import (
    AnyHandler,
    Channel,
    DeferredReply,
    Handled,
    Reply,
    Request,
    UnmadeReplies,
)
from twistmq.broker.remoting.request_runs import read_run
from twistmq.broker.wire.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    encode_reply,
)
from twistmq.broker.wire.field_sets import ReadRequest
from twistmq.broker.wire.frame import Frame
from twistmq.broker.wire.frame_peek import Sketch, sketch
from twistmq.broker.wire.request_reader import RequestReader, SignedRequestReader

if TYPE_CHECKING:
    from twistmq.broker.interfaces import IAccessValidator
    from twistmq.broker.plugin.hooks import Hooks

__all__ = ["ClientOwner", "Connection", "Dispatcher", "Head"]

#: The requests at the head of a read that are handled together; the frame behind them, if read.
Head = tuple[list[Request[Any]], ReadRequest | None]

#: The account of a client by each validator that knows it.
ClientOwner = tuple[str | None, ...]

_OPAQUE = re.compile(rb'"opaque"\s*:\s*"?(-?\d{1,10})(?![\d.eE])')
_INT32 = range(-2**31, 2**31)


class Connection(Channel, Protocol):
    """A connection as the dispatcher uses it, beyond what handlers see."""

    def response_received(self, command: RemotingCommand) -> None:
        """The peer answered a request of ours."""

    def write(self, data: bytes) -> None:
        """Send bytes; ignored once the connection is lost."""

    def reserve(self, size_bytes: int) -> None:
        """Count a request of this size as in flight while its reply waits."""

    def release(self, size_bytes: int) -> None:
        """The request was answered and is no longer in flight."""

    def waited(self, requests: Sequence[Request[Any]]) -> None:
        """Requests of one read that waited are answered now."""

    def may_run_more(self, reply_bytes: int) -> bool:
        """Whether more requests of this read may run now, after a reply of this size."""

    def run_later(self, frames: Sequence[Frame]) -> None:
        """Run these frames once other connections had their turn."""


class Dispatcher:
    """Runs requests of one port.

    :param handlers: the table.
    :param hooks: the RPC hooks to run around each handler.
    :param validators: every request must pass all of these first.
    """

    log = Logger()

    def __init__(
        self, handlers: Mapping[int, AnyHandler], hooks: Hooks,
        validators: Sequence[IAccessValidator] = (),
    ) -> None:
        self._hooks = hooks
        self._lines = LimitedLog(self.log, EVENTS_A_MINUTE)
        self.serve(handlers, validators)

    def serve(
        self, handlers: Mapping[int, AnyHandler], validators: Sequence[IAccessValidator] = ()
    ) -> None:
        """Use another table and other validators from now on."""
        self.handlers = dict(handlers)
        self._validators = tuple(validators)
        self._resource_validators = [
            each for each in self._validators if IResourceValidator.providedBy(each)]
        self._client_validators = [
            each for each in self._validators if IClientValidator.providedBy(each)]
        #: The validator, if there is one alone, that looks at requests of one read together.
        self._run_validator = self._validators[0] if len(self._validators) == 1 and (
            IRunValidator.providedBy(self._validators[0])) else None
        self.hooks_made()
        headers = {code: handler.header for code, handler in handlers.items()}
        self._reader = SignedRequestReader(headers) if validators else RequestReader(headers)
        self._batch_codes = frozenset(
            code for code, handler in handlers.items() if handler.handle_batch is not None)
        self._joined_codes = frozenset(
            code for code, handler in handlers.items() if handler.joins_connections)
        #: Bytes of a frame that no handler's bounds have to be looked at for.
        self._size_free = min(HEADER_SIZE_MAX, BODY_SIZE_MAX, *[
            min(handler.header_size_max, handler.body_size_max) for handler in handlers.values()])

    def hooks_made(self) -> None:
        """Guard requests by ``before_request`` too, if a plugin has it; when plugins are made."""
        self._guarded = bool(self._validators or self._hooks.before_request)

    def require_access(
        self, request: Request[Any], publishes: Collection[str] = (),
        consumes: Collection[str] = (), groups: Collection[str] = (),
    ) -> None:
        """Ask the validators whether a request may touch what its handler sees it does.

        :param publishes: see ``IResourceValidator.require``; so the others.
        :raises BrokerError: when one refuses it.
        """
        for validator in self._resource_validators:
            validator.require(request, publishes, consumes, groups)

    def owner_of(self, request: Request[Any]) -> ClientOwner:
        """Return whose the client is that sent a request; empty without access control."""
        return tuple([each.owner_of(request) for each in self._client_validators])

    def may_publish(self, owner: ClientOwner, address: str, topic: str) -> bool:
        """Return whether a client may send to a topic now: all validators must agree.

        :param owner: what ``owner_of`` returned; empty, if there was no access control then.
        :param address: of its connection, ``host:port``.
        """
        owners = owner or (None,) * len(self._client_validators)
        return all(each.may_publish(name, address, topic) for each, name in zip(
            self._client_validators, owners, strict=True))

    def restricted_to(self, handlers: Mapping[int, AnyHandler]) -> Dispatcher:
        """A dispatcher for another port: the same checks and hooks, other rows."""
        return Dispatcher(handlers, self._hooks, self._validators)

    def read_head(self, channel: Connection, frames: Sequence[Frame], now_ms: int) -> Head:
        """Read the requests at the head of a read that are handled together."""
        return read_run(
            self._reader, frames, self._batch_codes, self._size_free, channel, now_ms)

    def joined_code(self, head: Head, count: int) -> int | None:
        """Return the code of a read whose requests others may be handled with, or None.

        :param count: of the frames of the read.
        """
        run = head[0]
        if not run or len(run) < count or run[0].code not in self._joined_codes:
            return None
        return run[0].code

    def execute_together(self, runs: Sequence[Sequence[Request[Any]]]) -> list[list[bytes]]:
        """Run requests of several connections as one batch.

        :param runs: of each connection; all have one code, see ``joined_code``.
        :returns: for each connection what ``execute`` returns.
        """
        ready: list[list[bytes]] = [[] for _ in runs]
        if self._guarded:
            runs = [self._admitted(run, out) for run, out in zip(runs, ready, strict=True)]
        joined = list(chain.from_iterable(runs))
        if not joined:
            return ready
        answers = self._answers(self.handlers[joined[0].code], joined)
        begin = 0
        for run, out in zip(runs, ready, strict=True):
            if not run:
                continue
            end = begin + len(run)
            if isinstance(answers, UnmadeReplies):
                self._finish_batch(answers.part(begin, end), run, out)
            else:
                self._finish_batch(answers[begin:end], run, out)
            begin = end
        return ready

    def execute(
        self, channel: Connection, frames: Sequence[Frame], now_ms: int, head: Head | None = None,
    ) -> list[bytes]:
        """Run what one read brought, or the part that may run before it is others' turn.

        :param head: what was read of it already.
        :returns: the frames of the replies that are ready, in the order of the requests.
        """
        ready: list[bytes] = []
        batch_handler: AnyHandler | None = None
        handlers, read, size_free = self.handlers, self._reader.read, self._size_free
        ends = False
        read_ahead: ReadRequest | None
        run, read_ahead = self.read_head(channel, frames, now_ms) if head is None else head
        run_count = len(run)
        if self._guarded:
            run = self._admitted(run, ready)
        if run:
            batch_handler = handlers[run[0].code]
        # Requests that are handled together are one piece of work; after others it is asked
        # whether there is time for more.
        is_alone = False
        for index in range(run_count, len(frames)):
            frame = frames[index]
            if is_alone and not channel.may_run_more(len(ready[-1]) if ready else 0):
                channel.run_later(frames[index:])
                break
            is_alone = True
            is_long = len(frame[1]) + len(frame[2]) > size_free
            if is_long:
                seen = sketch(frame)
                too_long = _header_excess(
                    frame, None if seen.code is None else handlers.get(seen.code))
                if too_long is not None:
                    ends = not self._refuse_unread(channel, seen, too_long, now_ms, ready)
                    if ends:
                        break
                    continue
            try:
                command, header, texts = read_ahead or read(frame)
                read_ahead = None
            except HeaderError as error:
                ready.append(self._unreadable(channel, frame, error, now_ms))
                continue
            if command.flag & RESPONSE_FLAG:
                channel.response_received(command)
                continue
            handler = handlers.get(command.code)
            if is_long and (too_long := _excess(frame, handler)) is not None:
                request = self._request(command, channel, now_ms)
                self._finish(request, self._refusal(request, too_long), ready)
                continue
            if batch_handler is not None and handler is not batch_handler:
                self._run_batch(batch_handler, run, ready)
                run = []
                batch_handler = None
            if handler is None:
                request = self._request(command, channel, now_ms)
                answer = self._denied(request) or self._refusal(request, _unsupported(command))
                self._finish(request, answer, ready)
                continue
            was_read = header is not None
            if not was_read:
                try:
                    header = command.header(handler.header)
                except HeaderError as error:
                    request = self._request(command, channel, now_ms)
                    answer = self._denied(request) or self._refusal(request, error)
                    self._finish(request, answer, ready)
                    continue
            request = Request(command, header, channel, now_ms, texts)
            if self._guarded:
                refused = self._guard(request)
                if refused is not None:
                    self._finish(request, refused, ready)
                    continue
                if not was_read:
                    self._reader.passed(command)
                # They are not used any more; the next request's texts take their place in memory.
                request.texts = None
            if handler.handle_batch is None:
                self._finish(request, self._run(handler, request), ready)
            else:
                batch_handler = handler
                run.append(request)
                is_alone = False
        if batch_handler is not None:
            self._run_batch(batch_handler, run, ready)
        if ends:
            channel.write(b"".join(ready))
            channel.close()
            return []
        return ready

    def _refuse_unread(
        self, channel: Connection, seen: Sketch, error: RequestRefused, now_ms: int,
        ready: list[bytes],
    ) -> bool:
        """Refuse a frame whose header is too long to be read.

        :returns: whether the connection can go on: without an opaque no answer finds who asked.
        """
        self._lines.warn(now_ms, "request {code} from {peer} refused: {error}",
                         peer=channel.remote_address, code=seen.code, error=str(error))
        if seen.opaque is None:
            return False
        if seen.flag & RESPONSE_FLAG:
            channel.response_received(RemotingCommand(
                error.response_code, seen.opaque, RESPONSE_FLAG, remark=str(error)))
        elif not seen.flag & ONEWAY_FLAG:
            ready.append(encode_reply(error.response_code, seen.opaque, None, b"", str(error)))
        return True

    @staticmethod
    def _request(command: RemotingCommand, channel: Channel, now_ms: int) -> Request[Any]:
        """A request whose header could not be read or is not known."""
        return Request[Any](command, None, channel, now_ms)

    def _guard(self, request: Request[Any]) -> Reply | None:
        """Ask validators, then hooks; :returns: the reply that refuses the request, if any."""
        denied = self._denied(request)
        if denied is not None or not self._hooks.before_request:
            return denied
        answer = self._hooks.refuse_request(request)
        return self._refusal(request, answer) if isinstance(answer, BrokerError) else answer

    def _admitted(self, run: Sequence[Request[Any]], ready: list[bytes]) -> list[Request[Any]]:
        """Guard the requests of a run; the others are answered."""
        passing = 0
        if self._run_validator is not None and not self._hooks.before_request:
            try:
                passing = self._run_validator.passing(run)
            except Exception:
                self.log.failure("requests of one read are validated one by one")
        admitted = list(run[:passing])
        for request in run[passing:]:
            refused = self._guard(request)
            if refused is None:
                admitted.append(request)
            else:
                self._finish(request, refused, ready)
        for request in admitted:
            # A request that waits does not keep them.
            request.texts = None
        return admitted

    def _denied(self, request: Request[Any]) -> Reply | None:
        """Ask the validators first: a denied client must not learn which codes are served."""
        try:
            for validator in self._validators:
                validator.validate(request)
        except Exception as error:
            return self._refusal(request, error)
        return None

    def _run(self, handler: AnyHandler, request: Request[Any]) -> Handled:
        try:
            return handler.handle(request)
        except Exception as error:
            return self._refusal(request, error)

    def _run_batch(
        self, handler: AnyHandler, run: Sequence[Request[Any]], ready: list[bytes]
    ) -> None:
        self._finish_batch(self._answers(handler, run), run, ready)

    def _answers(self, handler: AnyHandler, run: Sequence[Request[Any]]) -> Sequence[Handled]:
        """Handle requests together; :returns: the answer to each."""
        assert handler.handle_batch is not None
        try:
            answers = handler.handle_batch(run)
            assert len(answers) == len(run)
        except Exception as error:
            answers = [self._refusal(request, error) for request in run]
        return answers

    def _finish_batch(
        self, answers: Sequence[Handled], run: Sequence[Request[Any]], ready: list[bytes]
    ) -> None:
        """Append the frames of the answers to requests of one channel, now or when they may go."""
        if isinstance(answers, UnmadeReplies) and not self._hooks.after_response:
            try:
                self._finish_unmade(answers, run, ready)
                return
            except Exception as error:
                answers = [self._refusal(request, error) for request in run]
        together: list[tuple[Request[Any], Reply | None]] = []
        until: Deferred[Any] | None = None
        for request, answer in zip(run, answers, strict=True):
            if not isinstance(answer, DeferredReply):
                self._finish(request, answer, ready)
                continue
            if until is not None and answer.until is not until:
                self._wait(until, together, ready)
                together = []
            until = answer.until
            together.append((request, answer.reply))
        if until is not None:
            self._wait(until, together, ready)

    def _finish_unmade(
        self, answers: UnmadeReplies, run: Sequence[Request[Any]], ready: list[bytes]
    ) -> None:
        """Append the frames of a whole batch, now or when they may go."""
        if answers.until is None:
            ready += answers.frames(run)
            return

        def finish(_: object, frames: list[bytes]) -> None:
            frames += answers.frames(run)

        self._hold(answers.until, run, finish, ready)

    def _finish(self, request: Request[Any], answer: Handled, ready: list[bytes]) -> None:
        """Append the frame of an answer to ``ready``; one that waits is written when it comes."""
        if isinstance(answer, Reply):
            if self._hooks.after_response:
                self._hooks.responded(request, answer)
            command = request.command
            if command.flag & ONEWAY_FLAG:
                return
            try:
                ready.append(answer.frame(command.opaque))
            except Exception as error:
                ready.append(self._unsendable(request, error).frame(command.opaque))
        elif isinstance(answer, Deferred):
            self._wait(answer, [(request, None)], ready)
        elif isinstance(answer, DeferredReply):
            self._wait(answer.until, [(request, answer.reply)], ready)
        elif answer is not None:
            self._finish(request, self._no_reply(request, answer), ready)

    def _wait(
        self, until: Deferred[Any], waiting: Sequence[tuple[Request[Any], Reply | None]],
        ready: list[bytes],
    ) -> None:
        """Write replies when they may go; those that may at once go with the others.

        :param waiting: requests of one channel; None: what ``until`` fires with is the reply.
        """
        def finish(result: Any, frames: list[bytes]) -> None:
            for request, reply in waiting:
                if isinstance(result, Failure):
                    reply = self._failed(result, request)
                self._finish(request, result if reply is None else reply, frames)

        self._hold(until, [request for request, _ in waiting], finish, ready)

    def _hold(
        self, until: Deferred[Any], requests: Sequence[Request[Any]],
        finish: Callable[[Any, list[bytes]], None], ready: list[bytes],
    ) -> None:
        """Finish requests of one channel when ``until`` has fired.

        :param finish: appends the frames of their replies, given what ``until`` fired with.
        """
        channel: Connection = requests[0].channel  # type: ignore[assignment]
        # ``until.called`` does not tell: what was called may wait for what it was chained to.
        there = held = False
        size = 0

        def answered(result: Any) -> None:
            nonlocal there
            there = True
            frames = [] if held else ready
            finish(result, frames)
            if held:
                if frames:
                    channel.write(b"".join(frames))
                channel.release(size)
                channel.waited(requests)

        until.addBoth(answered)
        if not there:
            held = True
            size = sum([self._held_size(request) for request in requests])
            channel.reserve(size)

    def _held_size(self, request: Request[Any]) -> int:
        """Let go of what a waiting request has no use for; :returns: what is left, bytes."""
        handler = self.handlers.get(request.command.code)
        command = request.command
        size = command.release_header() + HELD_REQUEST_BYTES + getattr(request, "kept_bytes", 0)
        # Long texts of the header are there a second time, as they were read.
        fields = len(command.ext_fields)
        if fields > HELD_REQUEST_BYTES:
            size += fields
        if handler is not None and handler.decodes_body:
            size += DECODED_BYTES_PER_BYTE * len(request.body)
        return size

    def _no_reply(self, request: Request[Any], answer: object) -> Reply:
        """The reply when a handler returned something that is not a reply: a bug of the handler."""
        if inspect.iscoroutine(answer):
            answer.close()
        error = TypeError(f"the handler of code {request.command.code} returned "
                          f"{type(answer).__name__}, which is not a reply")
        return self._refusal(request, error)

    def _failed(self, failure: Failure, request: Request[Any]) -> Reply:
        assert failure.value is not None
        return self._refusal(request, failure.value, failure)

    def _refusal(
        self, request: Request[Any], error: BaseException, failure: Failure | None = None
    ) -> Reply:
        """Turn an error into the reply its sender gets; what is no BrokerError is our bug."""
        if isinstance(error, BrokerError):
            self.log.debug("request {code} from {peer} refused: {error}", error=str(error),
                           code=request.command.code, peer=request.channel.remote_address)
            return Reply(error.response_code, remark=str(error))
        self._lines.failure(
            request.now_ms, "request {code} from {peer} failed", failure or Failure(error),
            code=request.command.code, peer=request.channel.remote_address)
        return Reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def _unsendable(self, request: Request[Any], error: Exception) -> Reply:
        """The reply in place of one that cannot be written."""
        if not isinstance(error, ReplyTooLong):
            # The text of such an error may be long too: the log has it.
            self._refusal(request, error)
            return Reply(ResponseCode.SYSTEM_ERROR, remark=type(error).__name__)
        self._lines.warn(
            request.now_ms, "reply to request {code} of {peer} refused: {error}",
            error=str(error), code=request.command.code, peer=request.channel.remote_address)
        return Reply(error.response_code, remark=str(error))

    def _unreadable(
        self, channel: Channel, frame: Frame, error: HeaderError, now_ms: int
    ) -> bytes:
        """Answer a frame whose header cannot be read, to the opaque that can be seen in it."""
        self._lines.warn(now_ms, "unreadable header from {peer}: {error}",
                         peer=channel.remote_address, error=str(error))
        found = _OPAQUE.search(frame[1])
        opaque = int(found[1]) if found else 0
        if opaque not in _INT32:  # the reply could not be read either
            opaque = 0
        return encode_reply(ResponseCode.SYSTEM_ERROR, opaque, None, b"", str(error))


def _header_excess(frame: Frame, handler: AnyHandler | None) -> RequestRefused | None:
    """Why a header is too long for its handler; None: it is not."""
    size = len(frame[1])
    size_max = HEADER_SIZE_MAX if handler is None else handler.header_size_max
    if size <= size_max:
        return None
    code = ResponseCode.INVALID_PARAMETER if handler is None else handler.too_long
    return RequestRefused(code, f"header of {size} bytes, over the limit of {size_max}")


def _excess(frame: Frame, handler: AnyHandler | None) -> RequestRefused | None:
    """Why a request is too long for its handler; None: it is not."""
    size = len(frame[2])
    size_max = BODY_SIZE_MAX if handler is None else handler.body_size_max
    if size <= size_max:
        # Its code may be another than it seemed to be.
        return _header_excess(frame, handler)
    code = ResponseCode.INVALID_PARAMETER if handler is None else handler.too_long
    return RequestRefused(code, f"body of {size} bytes, over the limit of {size_max}")


def _unsupported(command: RemotingCommand) -> RequestRefused:
    reason = REFUSED.get(command.code)
    remark = f" request type {command.code} not supported" + (f": {reason}" if reason else "")
    return RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
