"""Reads the requests of a port once: the command together with the header its handler needs.

The code of a request determines the types of its extFields, but both are in the same JSON header. A
reader would have to parse the header twice: first as a command with untyped fields, and then the
fields with their types. In nearly all JSON headers the code comes first, though, so the first bytes
show the type of the extFields before the header is parsed, and one pass is enough (``one_pass``).
This is done for the headers that are read most often, see ``CommandHeader.is_hot``. The header of a
command that is unusual in any way is read later, when it is needed. If signatures are checked,
``field_sets`` reads the headers.

Source: RemotingCommand @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from twistmq.protocol.binary_header import FieldPlan, plain_values
from twistmq.protocol.command import RemotingCommand, binary_command, decode_command
from twistmq.protocol.field_sets import FieldSetDecoders, ReadRequest, Shape, shapes_of
from twistmq.protocol.frame import JSON, Frame
from twistmq.protocol.header import UNREADABLE, CommandHeader, field_plan, reading_class
from twistmq.protocol.one_pass import command_decoder, decode_at_once

__all__ = ["RequestReader", "SignedRequestReader", "json_start"]

#: The number of bytes of a JSON header that distinguish codes of two and of three digits. Other
#: codes may be confused with each other, which only costs time.
_START_SIZE: Final = len('{"code":310,')

Headers = Mapping[int, type[CommandHeader]]


def json_start(code: int) -> bytes:
    """The bytes with which nearly all JSON headers of a code begin."""
    return (b'{"code":%d,"extFields":' % code)[:_START_SIZE]


class RequestReader:
    """Reads requests together with their headers.

    :param headers: for each code, the class of its extFields.
    :param keeps_texts: whether the extFields of a request are kept as they were sent, so that its
        signature can be checked.
    """

    def __init__(self, headers: Headers, *, keeps_texts: bool = False) -> None:
        self.keeps_texts: bool = keeps_texts
        #: The header class and decoder, by the beginning of a JSON header.
        self._decoders: dict[bytes, tuple[type[CommandHeader], msgspec.json.Decoder[Any]]] = {}
        #: The header class and plan of each code, for binary headers.
        self._plans: dict[int, tuple[type[CommandHeader], FieldPlan]] = {}
        for code, header_type in headers.items():
            if not header_type.is_hot:
                continue
            self._decoders[json_start(code)] = (
                header_type, command_decoder(code, reading_class(header_type)))
            plan = field_plan(header_type)
            if plan is not None:
                self._plans[code] = header_type, plan

    def read(self, frame: Frame) -> ReadRequest:
        """Read a request; the frame may also be a response.

        :raises HeaderError: as ``decode_command``.
        """
        return self.read_without_texts(frame)

    def shape_of(self, code: int) -> Shape | None:
        """The shape of the last signed request of a code; None if no shape is known."""
        return None

    def read_without_texts(self, frame: Frame) -> ReadRequest:
        """Read a request whose signature is not needed."""
        serialize_type, data, body = frame
        if serialize_type == JSON:
            one_pass = self._decoders.get(data[:_START_SIZE])
            if one_pass is None:
                return decode_command(frame), None, None
            header_type, decoder = one_pass
            try:
                command, header = decode_at_once(decoder, data, body)
            except UNREADABLE:
                return decode_command(frame), None, None
            header.__class__ = header_type
            return command, header, None
        command, ext = binary_command(data, body)
        entry = self._plans.get(command.code)
        if entry is None:
            return command, None, None
        header_type, plan = entry
        try:
            values = plain_values(ext, plan)
        except UNREADABLE:
            values = None
        return command, None if values is None else header_type(*values), None

    def passed(self, command: RemotingCommand) -> None:
        """Note that a request that was read without its header has passed the access checks."""


class SignedRequestReader(RequestReader):
    """Reads requests together with their headers and the texts that were signed.

    The sets of names are learned only from requests that passed the access checks.

    :param headers: as for ``RequestReader``.
    """

    def __init__(self, headers: Headers) -> None:
        super().__init__(headers, keeps_texts=True)
        self._by_code: dict[int, FieldSetDecoders] = {}
        self._by_start: dict[bytes, FieldSetDecoders] = {}
        for code, header_type in headers.items():
            shapes = shapes_of(code, header_type)
            if shapes is not None:
                self._by_code[code] = self._by_start[json_start(code)] = shapes

    def read(self, frame: Frame) -> ReadRequest:
        """As ``RequestReader.read``."""
        serialize_type, data, body = frame
        if serialize_type == JSON:
            shapes = self._by_start.get(data[:_START_SIZE])
            if shapes is None or shapes.last is None:
                return decode_command(frame), None, None
            read = shapes.last.read_json(data, body)
            if read is not None:
                return read
            command = decode_command(frame)
            shape = shapes.other_shape(command)
            read = None if shape is None else shape.read_json(data, body)
            return (command, None, None) if read is None else read
        command, ext = binary_command(data, body)
        shapes = self._by_code.get(command.code)
        if shapes is None or shapes.last is None:
            return command, None, None
        fields = shapes.last.read_binary(ext)
        if fields is None:
            shape = shapes.other_shape(command)
            fields = None if shape is None else shape.read_binary(ext)
        return (command, None, None) if fields is None else (command, *fields)

    def shape_of(self, code: int) -> Shape | None:
        shapes = self._by_code.get(code)
        return None if shapes is None else shapes.last

    def passed(self, command: RemotingCommand) -> None:
        """As ``RequestReader.passed``; the next similar request is read with its header."""
        shapes = self._by_code.get(command.code)
        if shapes is not None:
            shapes.learn(command)
