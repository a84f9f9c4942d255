"""``format("rocketmq_store")``: the messages in a broker's commit-log files, read without a broker.

The files may be copied or mounted, of this broker or Apache's, running or dead. Each file is read
by itself, a large one in several tasks. Rows of a file come in the order of
the log. Half messages and rollbacks, which no consumer sees, are no rows.

This module is imported where Spark is: the broker does not.

Source: CommitLog, MappedFileQueue @5.3.3; DataSource, DataSourceReader of PySpark 4.3.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twistmq.broker.errors import StoreDamaged, StoreError
from twistmq.broker.store.inspect.files import Reader, common_size, segment_sizes
from twistmq.broker.store.regular_file import open_regular
from twistmq.broker.topic_names import is_system_topic
from twistmq.broker.wire import record
from twistmq.spark_bridge.columns import columns_of_schema, spark_schema
from twistmq.spark_bridge.log_pieces import LogPiece, PieceReader
from twistmq.spark_bridge.record_batches import BatchBuilder, BodyUnreadable, RowFilter
from twistmq.spark_bridge.store_options import StoreOptions

__all__ = ["LostFile", "StoreReader", "StoreSource", "list_pieces"]

#: Clocks step back: a file is left out by time only when it is so far outside, ms.
_CLOCK_MARGIN_MS: Final = 600_000
#: Bytes of a piece at least, and at most: several cores are to read one file.
_PIECE_SIZE_MIN: Final = 1 << 20
_PIECE_SIZE_MAX: Final = 256 << 20
_log = logging.getLogger("twistmq.spark_bridge")


class LostFile(StoreError):
    """A file of the commit log is missing or was removed while it was read."""


class StoreSource(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_store"

    def schema(self) -> Any:
        return spark_schema(StoreOptions.read(self.options).columns)

    def reader(self, schema: Any) -> StoreReader:
        options = StoreOptions.read(self.options)
        return StoreReader(replace(options, columns=tuple(columns_of_schema(schema))))


#: Errors of a path that is gone, or is not a regular file: either is told as a loss.
_NO_FILE: Final = (errno.ENOENT, errno.EINVAL, errno.EISDIR)


class _Piece(InputPartition):
    """A piece to read; ``value`` is the LogPiece."""


class StoreReader(DataSourceReader):
    """Reads a store; its state goes to the tasks."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        pieces, missing = list_pieces(self._options)
        for text in missing:
            self._lose(text)
        return [_Piece(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        piece: LogPiece | None = partition.value
        if piece is None:  # Spark's own partition, where a store has no file
            return
        options = self._options
        builder = BatchBuilder(
            options.columns, row_filter(options), check_crc=options.check_crc,
            skip_unreadable=not options.fail_on_data_loss)
        damages = 0

        def on_damage(path: str, position: int, text: str) -> None:
            nonlocal damages
            if options.fail_on_data_loss:
                raise StoreDamaged(f"{path} is damaged at byte {position}: {text} "
                                   "(failOnDataLoss=false skips it)")
            damages += 1
            _log.warning("%s is damaged at byte %d: %s; skipped", path, position, text)

        reader = PieceReader(piece, builder, options.broker_name, on_damage, options.check_crc)
        try:
            yield from reader.batches()
        except FileNotFoundError:
            self._lose(f"{piece.path} was removed before it was read")
        except BodyUnreadable as error:
            raise BodyUnreadable(f"{piece.path}: {error} (failOnDataLoss=false skips it)") from None
        if damages or builder.damaged_count:
            _log.warning("%s: skipped %d damaged places and %d bodies that cannot be read",
                         piece.path, damages, builder.damaged_count)

    def _lose(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise LostFile(f"{text} (failOnDataLoss=false skips it)")
        _log.warning("%s; skipped", text)


def row_filter(options: StoreOptions) -> RowFilter:
    """Which records become rows."""
    return RowFilter(
        topics=options.topics, topics_but=None if options.topics else is_system_topic,
        stored_from_ms=options.stored_from_ms, stored_before_ms=options.stored_before_ms,
        entered_only=True)


def list_pieces(options: StoreOptions) -> tuple[list[LogPiece], list[str]]:
    """Find the pieces to read.

    :returns: pieces in the log's order; what is lost, such as files between others, a text each.
    :raises StoreError: when the path is no store.
    """
    root = Path(options.path)
    directory = root / "commitlog" if (root / "commitlog").is_dir() else root
    strange: dict[Path, str] = {}
    sizes = segment_sizes(directory, strange)
    if not sizes:
        why = "".join(f"; {path} is {kind}" for path, kind in list(strange.items())[:1])
        raise StoreError(f"option path: {options.path} has neither a directory commitlog nor "
                         f"files of one{why}")
    file_size = common_size(sizes.values())
    if not file_size:
        return [], []
    starts = sorted(sizes)
    missing = [f"{path} is {kind}, and not a regular file" for path, kind in strange.items()]
    for before, after in pairwise(starts):
        gap = range(before + file_size, after, file_size)
        if gap:
            # Between two files far apart there may be more than can be listed.
            what = "is" if len(gap) == 1 else f"and the files up to {gap[-1]:020d} are"
            missing.append(f"{directory / f'{gap[0]:020d}'} {what} missing between the others")
    filled = [start for start in starts if sizes[start]]
    last = max((start for start in filled if _first_time(directory, start) is not None),
               default=filled[-1])
    wanted = [start for start in filled if start <= last and _may_hold(
        options, _first_time(directory, start),
        _first_time(directory, start + file_size) if start < last else None)]
    written = {start: _written_end(directory, start) if start == last else file_size
               for start in wanted}
    step = _PIECE_SIZE_MAX
    if options.piece_count_min > len(wanted):
        step = min(step, max(-(-sum(written.values()) // options.piece_count_min),
                             _PIECE_SIZE_MIN))
    pieces = []
    for start in wanted:
        begins = range(0, max(written[start], 1), step)
        # The last piece goes to the file's end: a broker may be writing there.
        pieces += [
            LogPiece(str(directory / f"{start:020d}"), start, file_size, begin,
                     file_size if begin == begins[-1] else begin + step, start == last)
            for begin in begins]
    return pieces, missing


def _written_end(directory: Path, start: int) -> int:
    """Position behind the last byte of a file that is not zero."""
    reader = Reader()
    try:
        return reader.written_end(directory / f"{start:020d}")
    finally:
        reader.close()


def _first_time(directory: Path, start: int) -> int | None:
    """The store time of the first record of a file; None without a record."""
    try:
        with open(open_regular(directory / f"{start:020d}"), "rb") as file:
            head = file.read(record.RECORD_SIZE_MIN)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None
    if len(head) < record.RECORD_SIZE_MIN or not any(head[:8]):
        return None
    return record.record_store_timestamp(head)


def _may_hold(options: StoreOptions, first_ms: int | None, next_ms: int | None) -> bool:
    """Whether a file can have records of the time that is asked for."""
    if options.stored_before_ms is not None and first_ms is not None \
            and first_ms - _CLOCK_MARGIN_MS > options.stored_before_ms:
        return False
    return options.stored_from_ms is None or next_ms is None \
        or next_ms + _CLOCK_MARGIN_MS >= options.stored_from_ms
