"""The read of commit-log files, without a broker: the pieces, and the record batches of each.

The files may be a copy or a mounted folder, and they may belong to this broker or to Apache's,
running or stopped. The pieces can be read independently of each other. The rows of a file have the
order of the log. Half messages and rollbacks, which no consumer sees, do not become rows.

Source: CommitLog, MappedFileQueue @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from typing import Any, Final

from twistmq.broker.store.inspect.files import common_size
from twistmq.integrations.tables.errors import ShortError
from twistmq.integrations.tables.log_files import LogFolder, open_folder, shown_path
from twistmq.integrations.tables.log_pieces import LogPiece, PieceReader
from twistmq.integrations.tables.record_batches import BatchBuilder, BodyUnreadable, RowFilter
from twistmq.integrations.tables.store_options import StoreOptions
from twistmq.protocol import record
from twistmq.protocol.errors import StoreDamaged, StoreError
from twistmq.protocol.topic_names import is_system_topic

__all__ = ["LostFile", "StoreRead", "list_pieces"]

#: How far outside the requested time a file must be to be left out, ms. Clocks may step back.
_CLOCK_MARGIN_MS: Final = 600_000
#: The smallest and the largest size of a piece in bytes. Pieces let several cores read one file.
_PIECE_SIZE_MIN: Final = 1 << 20
_PIECE_SIZE_MAX: Final = 256 << 20
_LOG: Final = logging.getLogger("twistmq.tables")


class LostFile(ShortError, StoreError):
    """A file of the commit log is missing, or it was removed before it was read."""


class StoreRead:
    """Reads a store.

    :param options: the options of the read.
    """

    def __init__(self, options: StoreOptions) -> None:
        self._options = options

    def pieces(self) -> list[LogPiece]:
        """Find the pieces to read, in the order of the log.

        :raises StoreError: when the path is not a store.
        :raises LostFile: when a file is missing and failOnDataLoss is true.
        """
        pieces, missing = list_pieces(self._options)
        for text in missing:
            self._lose(text)
        return pieces

    def batches(self, piece: LogPiece) -> Iterator[Any]:
        """Read one piece.

        :returns: record batches with the rows in the order of the log.
        :raises StoreDamaged, BodyUnreadable, LostFile: with the file and the position in the text,
            unless failOnDataLoss is false.
        """
        options = self._options
        builder = BatchBuilder(
            options.columns, row_filter(options), check_crc=options.check_crc,
            skip_unreadable=not options.fail_on_data_loss)
        shown, damages = shown_path(piece.path), 0

        def on_damage(_: str, position: int, text: str) -> None:
            nonlocal damages
            if options.fail_on_data_loss:
                raise StoreDamaged(f"{shown} is damaged at byte {position}: {text} "
                                   "(failOnDataLoss=false skips it)") from None
            damages += 1
            _LOG.warning("%s is damaged at byte %d: %s; skipped", shown, position, text)

        reader = PieceReader(piece, builder, options.broker_name, on_damage, options.check_crc)
        try:
            yield from reader.batches()
        except FileNotFoundError:
            self._lose(f"{shown} was removed before it was read")
        except BodyUnreadable as error:
            raise BodyUnreadable(f"{shown}: {error} (failOnDataLoss=false skips it)") from None
        if damages or builder.damaged_count:
            _LOG.warning("%s: skipped %d damaged places and %d bodies that cannot be read",
                         shown, damages, builder.damaged_count)

    def _lose(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise LostFile(f"{text} (failOnDataLoss=false skips it)") from None
        _LOG.warning("%s; skipped", text)


def row_filter(options: StoreOptions) -> RowFilter:
    """Return the filter that determines which records become rows."""
    return RowFilter(
        topics=options.topics, topics_but=None if options.topics else is_system_topic,
        stored_from_ms=options.stored_from_ms, stored_before_ms=options.stored_before_ms,
        entered_only=True)


def list_pieces(options: StoreOptions) -> tuple[list[LogPiece], list[str]]:
    """Find the pieces to read.

    :returns: the pieces in the order of the log, and a text for each loss, such as a missing file.
    :raises StoreError: when the path is not a store.
    """
    folder = open_folder(options.path)
    strange: dict[str, str] = {}
    sizes = folder.sizes(strange)
    if not sizes:
        why = "".join(f"; {path} is {kind}" for path, kind in list(strange.items())[:1])
        raise StoreError(f"option path: {shown_path(options.path)} has neither a directory "
                         f"commitlog nor files of one{why}")
    file_size = common_size(sizes.values())
    if not file_size:
        return [], []
    starts = sorted(sizes)
    missing = [f"{path} is {kind}, and not a regular file" for path, kind in strange.items()]
    for before, after in pairwise(starts):
        gap = range(before + file_size, after, file_size)
        if gap:
            # Between two files that are far apart, there may be too many missing files to list.
            what = "is" if len(gap) == 1 else f"and the files up to {gap[-1]:020d} are"
            missing.append(f"{shown_path(folder.path(gap[0]))} {what} missing between the others")
    filled = [start for start in starts if sizes[start]]
    first_time = cache(partial(_first_time, folder))
    last = next((start for start in reversed(filled) if first_time(start) is not None), filled[-1])
    selected = [start for start in filled if start <= last and _may_hold(
        options, first_time, start, start + file_size if start < last else None)]
    end = folder.written_end(last) if last in selected else 0
    written = {start: end if start == last else file_size for start in selected}
    step = _PIECE_SIZE_MAX
    if options.piece_count_min > len(selected):
        step = min(step, max(-(-sum(written.values()) // options.piece_count_min),
                             _PIECE_SIZE_MIN))
    pieces = []
    for start in selected:
        begins = range(0, max(written[start], 1), step)
        # The last piece extends to the end of the file, because a broker may be writing there.
        pieces += [
            LogPiece(folder.path(start), start, file_size, begin,
                     file_size if begin == begins[-1] else begin + step, start == last,
                     end if start == last and not folder.is_live else None)
            for begin in begins]
    return pieces, missing


def _first_time(folder: LogFolder, start: int) -> int | None:
    """Read the store time of the first record of a file; None without a record."""
    head = folder.head(start, record.RECORD_SIZE_MIN)
    if len(head) < record.RECORD_SIZE_MIN or not any(head[:8]):
        return None
    return record.record_store_timestamp(head)


def _may_hold(options: StoreOptions, first_time: Callable[[int], int | None], start: int,
              following: int | None) -> bool:
    """Whether a file can contain records of the requested time.

    :param first_time: a function that returns the store time of the first record of a file.
    :param following: the start of the next file; None for the last file.
    """
    if options.stored_before_ms is not None:
        first_ms = first_time(start)
        if first_ms is not None and first_ms - _CLOCK_MARGIN_MS > options.stored_before_ms:
            return False
    if options.stored_from_ms is None or following is None:
        return True
    next_ms = first_time(following)
    return next_ms is None or next_ms + _CLOCK_MARGIN_MS >= options.stored_from_ms
