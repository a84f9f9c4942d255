"""Converts numpy arrays and lists to Arrow arrays and back, without pandas.

``pyarrow.array`` and ``Array.to_numpy`` import pandas if it is installed, whatever they convert.
That takes a second of a processor and 40 MB of memory, which a program without data frames does not
need. The functions here exchange the buffers of the arrays instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["binary_array", "flag_array", "flags_of", "number_array", "numbers_of", "text_array"]


def number_array(values: Any, is_null: Any = None) -> Any:
    """Make an array of numbers, which shares the memory of the numpy array if that is contiguous.

    :param values: numbers, one-dimensional.
    :param is_null: bool[values]; None when no value is null.
    """
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values),
        [None if is_null is None else _bits(~is_null), pa.py_buffer(np.ascontiguousarray(values))])


def flag_array(values: Any) -> Any:
    """Make a BooleanArray; :param values: bool[values]."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def text_array(texts: Iterable[str | None]) -> Any:
    """Make a StringArray.

    :raises pa.ArrowInvalid: when the texts have 2 GiB or more.
    """
    return _pieces([None if text is None else text.encode() for text in texts], pa.string())


def binary_array(values: Sequence[bytes | None]) -> Any:
    """Make a BinaryArray.

    :raises pa.ArrowInvalid: when the values have 2 GiB or more.
    """
    return _pieces(values, pa.binary())


def numbers_of(array: Any) -> Any:
    """Return the numbers of an array without nulls, as a numpy array that shares its memory."""
    _, values = array.buffers()
    dtype = _dtype(array.type)
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(values, dtype, array.offset + len(array))[array.offset:]


def flags_of(array: Any) -> Any:
    """Return the values of a BooleanArray without nulls, bool[values]."""
    _, values = array.buffers()
    if not len(array):
        return np.empty(0, bool)
    bits = np.frombuffer(values, np.uint8)
    end = array.offset + len(array)
    return np.unpackbits(bits, count=end, bitorder="little")[array.offset:].view(bool)


def _dtype(type_: Any) -> Any:
    """Return the numpy type of a type of numbers.

    ``DataType.to_pandas_dtype`` does so as well, but imports pandas in pyarrow 18.
    """
    kind = "f" if pa.types.is_floating(type_) else "iu"[pa.types.is_unsigned_integer(type_)]
    return np.dtype(f"{kind}{type_.bit_width // 8}")


def _pieces(values: Sequence[bytes | None], type_: Any) -> Any:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        raise pa.ArrowInvalid(f"the values of a column have {offsets[-1]} bytes, and 2 GiB fit")
    is_valid = np.array([value is not None for value in values], bool)
    return pa.Array.from_buffers(type_, len(values), [
        None if is_valid.all() else _bits(is_valid), pa.py_buffer(offsets.astype(np.int32)),
        pa.py_buffer(b"".join(value for value in values if value is not None))])


def _bits(values: Any) -> Any:
    """Return bool[values] as a buffer with a bit for each value."""
    return pa.py_buffer(np.packbits(values, bitorder="little"))
