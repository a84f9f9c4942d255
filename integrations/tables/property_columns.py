"""Builds the columns that are derived from properties, for many messages at once.

The properties of a message are stored as a sequence of ``name 0x01 value 0x02``. If the properties
of all messages have this form, without empty names or values and without repeated names, the maps
are built by a search for the two separators in all bytes at once. Otherwise the properties are read
message by message, as in the decoder of the client: entries without a name or a value are left out,
and the last of several values counts.

Source: MessageDecoder.string2messageProperties @5.3.3.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twistmq.integrations.tables.arrow_arrays import (
    flag_array,
    flags_of,
    number_array,
    numbers_of,
    text_array,
)
from twistmq.protocol import properties as names
from twistmq.protocol.decimal_text import whole_number

__all__ = ["PropertyColumns"]

_NAME_END: Final = 1
_PAIR_END: Final = 2
#: The largest product of names and messages for which pairs are counted in a table.
_TABLE_SIZE_MAX: Final = 10_000_000


class PropertyColumns:
    """The properties of some messages.

    :param texts: a BinaryArray without nulls that has the stored properties of each message.
    """

    def __init__(self, texts: Any) -> None:
        self._count = len(texts)
        if not self._find_pairs(texts):
            self._read_each(texts)

    def map(self, type_: Any) -> Any:
        """Return all properties of each message as a MapArray.

        :param type_: map<string,string>, with the requested nullability.
        """
        properties = self._map()
        return properties if properties.type == type_ else properties.cast(type_)

    def json(self) -> Any:
        """Return all properties of each message as a JSON object in a StringArray."""
        return text_array(json.dumps(dict(pairs), ensure_ascii=False)
                          for pairs in self._map().to_pylist())

    def _map(self) -> Any:
        return pa.MapArray.from_arrays(number_array(self._row_offsets), self._names, self._values)

    def text(self, name: str) -> Any:
        """Return one property of each message as a StringArray; null if a message lacks it."""
        code = self._code_of.get(name)
        if code is None:
            return pa.nulls(self._count, pa.string())
        pairs = np.flatnonzero(self._codes == code)
        if len(pairs) == self._count:
            return self._values.take(number_array(pairs))
        index = np.zeros(self._count, np.int64)
        is_null = np.ones(self._count, bool)
        rows = self._rows[pairs]
        index[rows] = pairs
        is_null[rows] = False
        return self._values.take(number_array(index, is_null))

    def integer(self, name: str, type_: Any) -> Any:
        """Return one property of each message as a number.

        The value is null if the text is not a number or the number does not fit.
        """
        limit = 1 << (type_.bit_width - 1)
        if name not in self._code_of:
            return pa.nulls(self._count, type_)
        numbers = [_integer(text, limit) for text in self.text(name).to_pylist()]
        return number_array(
            np.array([number or 0 for number in numbers], f"i{type_.bit_width // 8}"),
            np.array([number is None for number in numbers], bool))

    def words(self, name: str, type_: Any) -> Any:
        """Return one property of each message, split at spaces; null if a message lacks it.

        :param type_: list<string>, with the requested nullability.
        """
        texts = self.text(name)
        if texts.null_count == self._count:
            return pa.nulls(self._count, type_)
        split = pc.split_pattern(texts, names.KEY_SEPARATOR)
        counts = np.diff(numbers_of(split.offsets))
        if texts.null_count:
            counts[flags_of(pc.is_null(texts))] = 0
        words = split.flatten()
        is_word = numbers_of(pc.binary_length(words)) > 0
        ends = np.concatenate(([0], np.cumsum(is_word)))[np.concatenate(([0], np.cumsum(counts)))]
        lists = pa.ListArray.from_arrays(
            number_array(ends.astype(np.int32)), words.filter(flag_array(is_word)),
            mask=pc.is_null(texts) if texts.null_count else None)
        return lists if lists.type == type_ else lists.cast(type_)

    def _read_each(self, texts: Any) -> None:
        """Read the names and values message by message."""
        property_maps = [names.parse_properties(text.decode("utf-8", "replace"))
                         for text in texts.to_pylist()]
        self._names = text_array(name for each in property_maps for name in each)
        self._values = text_array(value for each in property_maps for value in each.values())
        self._assign_rows(np.concatenate(([0], np.cumsum([len(each) for each in property_maps]))))
        assert self._names_differ()

    def _find_pairs(self, texts: Any) -> bool:
        """Find names and values by their separators; returns False if the form is not regular."""
        _, offset_buffer, data_buffer = texts.buffers()
        offsets = np.frombuffer(offset_buffer, np.int32)[
            texts.offset : texts.offset + self._count + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        if end == begin:
            data = np.empty(0, np.uint8)
            data_buffer = pa.py_buffer(b"")
        else:
            data = np.frombuffer(data_buffer, np.uint8)[:end]
        name_ends = np.flatnonzero(data[begin:] == _NAME_END) + begin
        pair_ends = np.flatnonzero(data[begin:] == _PAIR_END) + begin
        if len(name_ends) != len(pair_ends):
            return False
        name_starts = np.concatenate(([begin], pair_ends + 1))[:-1]
        filled = offsets[1:][offsets[1:] > offsets[:-1]]
        if ((name_ends <= name_starts) | (pair_ends <= name_ends + 1)).any() \
                or (data[filled - 1] != _PAIR_END).any():
            return False
        # A pair consists of four elements: name, separator, value, separator.
        count = len(name_ends)
        edges = np.empty(4 * count + 1, np.int32)
        edges[0:-1:4], edges[1::4] = name_starts, name_ends
        edges[2::4], edges[3::4] = name_ends + 1, pair_ends
        edges[-1] = end
        pieces = pa.Array.from_buffers(
            pa.binary(), 4 * count, [None, pa.py_buffer(edges), data_buffer])
        places = np.arange(0, 4 * count, 4)
        try:
            self._names = pieces.take(number_array(places)).cast(pa.string())
            self._values = pieces.take(number_array(places + 2)).cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            return False
        self._assign_rows(np.searchsorted(pair_ends, offsets, "left"))
        return self._names_differ()

    def _assign_rows(self, row_offsets: Any) -> None:
        """Assign the pairs to messages, and number the names.

        :param row_offsets: the index of the first pair of each message, and the number of pairs.
        """
        self._row_offsets = row_offsets.astype(np.int32)
        self._rows = np.repeat(np.arange(self._count), np.diff(self._row_offsets))
        coded = self._names.dictionary_encode()
        self._codes = numbers_of(coded.indices)
        self._code_of = {name: code for code, name in enumerate(coded.dictionary.to_pylist())}

    def _names_differ(self) -> bool:
        """Whether all names in each message are different."""
        pair = self._rows * max(len(self._code_of), 1) + self._codes
        if self._count * len(self._code_of) <= _TABLE_SIZE_MAX:
            return not len(pair) or int(np.bincount(pair).max()) <= 1
        return len(np.unique(pair)) == len(pair)


def _integer(text: str | None, limit: int) -> int | None:
    """Return the number of a text; None when it is not from ``-limit`` to ``limit - 1``."""
    if text is None:
        return None
    if text.startswith("-"):
        size = whole_number(text[1:], limit)
        return None if size is None else -size
    return whole_number(text, limit - 1)
