"""Runs requests: the handler of each code, with access checks and RPC hooks around it.

Every request passes through this module, so it does for all handlers what a single one could
forget: it limits sizes, checks access, turns errors into responses, and writes the replies of one
read together. A handler only serves its request, and a fault in it does not affect the other
requests of the read.

Each row of the handler table limits the size of the header and of the body of its requests. A
request that exceeds a limit is refused before the oversized part is parsed.

One :class:`Dispatcher` serves the whole table ``code -> handler`` of a port; name server and broker
use the same class. The replies that are ready leave in one write for each read. A reply that waits
is written separately when it is ready. It never delays other replies, because clients match replies
to requests by the opaque.

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

from twistmq.broker.constants import (
    BODY_SIZE_MAX,
    DECODED_BYTES_PER_BYTE,
    HEADER_SIZE_MAX,
    HELD_REQUEST_BYTES,
)
from twistmq.broker.remoting.interfaces import IClientValidator, IResourceValidator, IRunValidator
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
from twistmq.protocol.codes import REFUSED, ResponseCode
from twistmq.protocol.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    encode_reply,
)
from twistmq.protocol.errors import BrokerError, HeaderError, ReplyTooLong, RequestRefused
from twistmq.protocol.field_sets import ReadRequest
from twistmq.protocol.frame import Frame
from twistmq.protocol.frame_peek import Sketch, sketch
from twistmq.protocol.log_rate import EVENTS_A_MINUTE, LimitedLog
from twistmq.protocol.request_reader import RequestReader, SignedRequestReader

if TYPE_CHECKING:
    from twistmq.broker.remoting.interfaces import IAccessValidator, RequestHooks

__all__ = ["ClientOwner", "Connection", "Dispatcher", "Head"]

#: The requests at the head of a read that are handled together, and the frame after them, if read.
Head = tuple[list[Request[Any]], ReadRequest | None]

#: The accounts of a client, one from each validator that has accounts.
ClientOwner = tuple[str | None, ...]

_OPAQUE = re.compile(rb'"opaque"\s*:\s*"?(-?\d{1,10})(?![\d.eE])')
_INT32 = range(-2**31, 2**31)


class Connection(Channel, Protocol):
    """A connection with the additional methods that only the dispatcher uses."""

    def response_received(self, command: RemotingCommand) -> None:
        """Pass on the peer's response to a request of this process."""

    def write(self, data: bytes) -> None:
        """Send bytes; they are ignored once the connection is lost."""

    def reserve(self, size_bytes: int) -> None:
        """Count a request of this size as in flight while its reply waits."""

    def release(self, size_bytes: int) -> None:
        """Count a request as answered, so that it is no longer in flight."""

    def waited(self, requests: Sequence[Request[Any]]) -> None:
        """Note that waiting requests of one read have been answered."""

    def may_run_more(self, reply_bytes: int) -> bool:
        """Whether more requests of this read may run now, after a reply of this size."""

    def run_later(self, frames: Sequence[Frame]) -> None:
        """Run these frames after other connections have had their turn."""


class Dispatcher:
    """Runs the requests of one port.

    :param handlers: the handler table.
    :param hooks: the RPC hooks to run around each handler.
    :param validators: every request must pass all of these first.
    """

    log = Logger()

    def __init__(
        self, handlers: Mapping[int, AnyHandler], hooks: RequestHooks,
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
        #: The validator that examines the requests of one read together, if it is the only one.
        self._run_validator = self._validators[0] if len(self._validators) == 1 and (
            IRunValidator.providedBy(self._validators[0])) else None
        self.hooks_made()
        headers = {code: handler.header for code, handler in handlers.items()}
        self._reader = SignedRequestReader(headers) if validators else RequestReader(headers)
        self._batch_codes = frozenset(
            code for code, handler in handlers.items() if handler.handle_batch is not None)
        self._joined_codes = frozenset(
            code for code, handler in handlers.items() if handler.joins_connections)
        #: The size of a frame up to which no limit of a handler needs to be checked.
        self._size_free = min(HEADER_SIZE_MAX, BODY_SIZE_MAX, *[
            min(handler.header_size_max, handler.body_size_max) for handler in handlers.values()])

    def hooks_made(self) -> None:
        """Run ``before_request`` hooks too, if a plugin has one; called when plugins are made."""
        self._guarded = bool(self._validators or self._hooks.before_request)

    def require_access(
        self, request: Request[Any], publishes: Collection[str] = (),
        consumes: Collection[str] = (), groups: Collection[str] = (),
    ) -> None:
        """Ask the validators whether a request may use the resources that its handler found.

        :param publishes: see ``IResourceValidator.require``, as for the other parameters.
        :raises BrokerError: when a validator refuses the request.
        """
        for validator in self._resource_validators:
            validator.require(request, publishes, consumes, groups)

    def owner_of(self, request: Request[Any]) -> ClientOwner:
        """Return the account of the client that sent a request; empty without access control."""
        return tuple([each.owner_of(request) for each in self._client_validators])

    def may_publish(self, owner: ClientOwner, address: str, topic: str) -> bool:
        """Return whether a client may send to a topic now, which all validators must allow.

        :param owner: the result of ``owner_of``; empty if there was no access control at the time.
        :param address: the address of the client's connection, ``host:port``.
        """
        owners = owner or (None,) * len(self._client_validators)
        return all(each.may_publish(name, address, topic) for each, name in zip(
            self._client_validators, owners, strict=True))

    def restricted_to(self, handlers: Mapping[int, AnyHandler]) -> Dispatcher:
        """Make a dispatcher for another port, with the same checks and hooks, and other rows."""
        return Dispatcher(handlers, self._hooks, self._validators)

    def read_head(self, channel: Connection, frames: Sequence[Frame], now_ms: int) -> Head:
        """Read the requests at the head of a read that are handled together."""
        return read_run(
            self._reader, frames, self._batch_codes, self._size_free, channel, now_ms)

    def joined_code(self, head: Head, count: int) -> int | None:
        """Return the code of a read that can be joined with other connections' requests, or None.

        :param count: the number of frames in the read.
        """
        run = head[0]
        if not run or len(run) < count or run[0].code not in self._joined_codes:
            return None
        return run[0].code

    def execute_together(self, runs: Sequence[Sequence[Request[Any]]]) -> list[list[bytes]]:
        """Run requests of several connections as one batch.

        :param runs: the requests of each connection; all have one code, see ``joined_code``.
        :returns: the result of ``execute`` for each connection.
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
        """Run the frames of one read, or as many of them as the connection's turn allows.

        :param head: the requests that were read from the frames already.
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
        # Requests that are handled together are one piece of work. After any other request the
        # connection is asked whether there is time for more.
        is_alone = False
        for index in range(run_count, len(frames)):
            frame = frames[index]
            if is_alone and not channel.may_run_more(len(ready[-1]) if ready else 0):
                channel.run_later(frames[index:])
                break
            is_alone = True
            is_long = len(frame[1]) + len(frame[2]) > size_free
            if is_long:
                header_sketch = sketch(frame)
                too_long = _header_excess(
                    frame, None if header_sketch.code is None else handlers.get(header_sketch.code))
                if too_long is not None:
                    ends = not self._refuse_unread(channel, header_sketch, too_long, now_ms, ready)
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
                # They are no longer needed; the texts of the next request reuse their memory.
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
        self, channel: Connection, header_sketch: Sketch, error: RequestRefused, now_ms: int,
        ready: list[bytes],
    ) -> bool:
        """Refuse a frame whose header is too long to be read.

        :returns: whether the connection can continue: without an opaque, the peer cannot match the
            replies.
        """
        self._lines.warn(now_ms, "request {code} from {peer} refused: {error}",
                         peer=channel.remote_address, code=header_sketch.code, error=str(error))
        if header_sketch.opaque is None:
            return False
        if header_sketch.flag & RESPONSE_FLAG:
            channel.response_received(RemotingCommand(
                error.response_code, header_sketch.opaque, RESPONSE_FLAG, remark=str(error)))
        elif not header_sketch.flag & ONEWAY_FLAG:
            ready.append(encode_reply(
                error.response_code, header_sketch.opaque, None, b"", str(error)))
        return True

    @staticmethod
    def _request(command: RemotingCommand, channel: Channel, now_ms: int) -> Request[Any]:
        """Make a request whose header could not be read or is not known."""
        return Request[Any](command, None, channel, now_ms)

    def _guard(self, request: Request[Any]) -> Reply | None:
        """Ask the validators, then the hooks; :returns: the reply that refuses the request."""
        denied = self._denied(request)
        if denied is not None or not self._hooks.before_request:
            return denied
        answer = self._hooks.refuse_request(request)
        return self._refusal(request, answer) if isinstance(answer, BrokerError) else answer

    def _admitted(self, run: Sequence[Request[Any]], ready: list[bytes]) -> list[Request[Any]]:
        """Return the requests of a run that may be served; the refused ones are answered."""
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
            # A waiting request does not keep them.
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
        """Write the answers to requests of one channel into ``ready``, or later if they wait."""
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
        """Write the replies of a whole batch into ``ready``, or later if they wait."""
        if answers.until is None:
            ready += answers.frames(run)
            return

        def finish(_: object, frames: list[bytes]) -> None:
            frames += answers.frames(run)

        self._hold(answers.until, run, finish, ready)

    def _finish(self, request: Request[Any], answer: Handled, ready: list[bytes]) -> None:
        """Append the frame of an answer to ``ready``; an answer that waits is written later."""
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
        """Write replies when ``until`` has fired; if it has fired already, they go to ``ready``.

        :param waiting: requests of one channel with their replies. If a reply is None, the result
            of ``until`` is the reply.
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

        :param finish: appends the frames of their replies; its first argument is the result of
            ``until``.
        """
        channel: Connection = requests[0].channel  # type: ignore[assignment]
        # ``until.called`` does not help: a called Deferred may wait for another one in its chain.
        is_answered = is_held = False
        size = 0

        def answered(result: Any) -> None:
            nonlocal is_answered
            is_answered = True
            frames = [] if is_held else ready
            finish(result, frames)
            if is_held:
                if frames:
                    channel.write(b"".join(frames))
                channel.release(size)
                channel.waited(requests)

        until.addBoth(answered)
        if not is_answered:
            is_held = True
            size = sum([self._held_size(request) for request in requests])
            channel.reserve(size)

    def _held_size(self, request: Request[Any]) -> int:
        """Release data that a waiting request does not need; :returns: the remaining bytes."""
        handler = self.handlers.get(request.command.code)
        command = request.command
        size = command.release_header() + HELD_REQUEST_BYTES + getattr(request, "kept_bytes", 0)
        # Long texts of the header exist twice, because they were parsed.
        fields = len(command.ext_fields)
        if fields > HELD_REQUEST_BYTES:
            size += fields
        if handler is not None and handler.decodes_body:
            size += DECODED_BYTES_PER_BYTE * len(request.body)
        return size

    def _no_reply(self, request: Request[Any], answer: object) -> Reply:
        """Make the reply after a handler returned an invalid value: a bug of the handler."""
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
        """Turn an error into a reply; any error but a BrokerError is a bug of the server."""
        if isinstance(error, BrokerError):
            self.log.debug("request {code} from {peer} refused: {error}", error=str(error),
                           code=request.command.code, peer=request.channel.remote_address)
            return Reply(error.response_code, remark=str(error))
        self._lines.failure(
            request.now_ms, "request {code} from {peer} failed", failure or Failure(error),
            code=request.command.code, peer=request.channel.remote_address)
        return Reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def _unsendable(self, request: Request[Any], error: Exception) -> Reply:
        """Make the reply that replaces one that cannot be written."""
        if not isinstance(error, ReplyTooLong):
            # The text of such an error may be too long as well; it is in the log.
            self._refusal(request, error)
            return Reply(ResponseCode.SYSTEM_ERROR, remark=type(error).__name__)
        self._lines.warn(
            request.now_ms, "reply to request {code} of {peer} refused: {error}",
            error=str(error), code=request.command.code, peer=request.channel.remote_address)
        return Reply(error.response_code, remark=str(error))

    def _unreadable(
        self, channel: Channel, frame: Frame, error: HeaderError, now_ms: int
    ) -> bytes:
        """Answer a frame whose header cannot be parsed, with the opaque found in it."""
        self._lines.warn(now_ms, "unreadable header from {peer}: {error}",
                         peer=channel.remote_address, error=str(error))
        match = _OPAQUE.search(frame[1])
        opaque = int(match[1]) if match else 0
        if opaque not in _INT32:  # the reply could not be read either
            opaque = 0
        return encode_reply(ResponseCode.SYSTEM_ERROR, opaque, None, b"", str(error))


def _header_excess(frame: Frame, handler: AnyHandler | None) -> RequestRefused | None:
    """Return why a header is too long for its handler; None if it is not."""
    size = len(frame[1])
    size_max = HEADER_SIZE_MAX if handler is None else handler.header_size_max
    if size <= size_max:
        return None
    code = ResponseCode.INVALID_PARAMETER if handler is None else handler.too_long
    return RequestRefused(code, f"header of {size} bytes, over the limit of {size_max}")


def _excess(frame: Frame, handler: AnyHandler | None) -> RequestRefused | None:
    """Return why a request is too long for its handler; None if it is not."""
    size = len(frame[2])
    size_max = BODY_SIZE_MAX if handler is None else handler.body_size_max
    if size <= size_max:
        # The code may differ from the one that the sketch found.
        return _header_excess(frame, handler)
    code = ResponseCode.INVALID_PARAMETER if handler is None else handler.too_long
    return RequestRefused(code, f"body of {size} bytes, over the limit of {size_max}")


def _unsupported(command: RemotingCommand) -> RequestRefused:
    reason = REFUSED.get(command.code)
    remark = f" request type {command.code} not supported" + (f": {reason}" if reason else "")
    return RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
