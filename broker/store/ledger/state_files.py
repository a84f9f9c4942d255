"""The two small files of a ledger: the term with the vote, and the checkpoint.

Both are texts of ``key=value`` lines in the folder of the ledger, as Apache's members write them.
The term and the vote must be durable before a message that contains them is sent: a member that
forgets its vote may vote twice in one term. Differs from Apache, which writes the files without a
sync and deletes the old one before it renames the new one.

Source: MemberState.persistTerm, loadTerm, DLedgerMmapFileStore.persistCheckPoint @dledger-0.3.1.2.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from twistmq.broker.store.interfaces import IStoreIO
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.errors import StoreDamaged, StoreError

__all__ = ["HardState", "LedgerCheckpoint", "read_checkpoint", "read_hard_state",
           "write_checkpoint", "write_hard_state"]

_TERM_FILE: Final = "currterm"
_CHECKPOINT_FILE: Final = "checkpoint"
_TERM: Final = "currTerm"
_VOTE: Final = "voteLeader"
#: Only twistmq's members write this key; Apache's members ignore it.
_JOINED: Final = "joined"
_COMMITTED: Final = "committedIndex"
_END: Final = "endIndex"


@dataclass(frozen=True, slots=True)
class HardState:
    """The state that a member must not forget.

    :param term: the highest term that it has heard of; 0 in a new ledger.
    :param vote: the member for which it voted in this term; empty without a vote.
    :param has_joined: whether it has had all committed entries at some time, so that its vote
        cannot elect a member that lacks any of them.
    """

    term: int = 0
    vote: str = ""
    has_joined: bool = False


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """The last entries at the time when the checkpoint was written; -1 without an entry."""

    committed_index: int = -1
    end_index: int = -1


def read_hard_state(io: IStoreIO, folder: str) -> HardState | None:
    """Read the term and the vote; None when there has never been one.

    Apache's members delete the file before they rename the new one. If the file is missing, the
    newer one of its backup and the new file counts.

    :raises StoreDamaged: when the file is not valid. A member that assumed another term or vote
        could vote twice.
    """
    path = f"{folder}/{_TERM_FILE}"
    if io.exists(path):
        return _hard_state(io, path)
    states: list[HardState] = []
    for ending in (".tmp", ".bak"):
        with suppress(StoreDamaged):
            states += [_hard_state(io, path + ending)] if io.exists(path + ending) else []
    return max(states, key=lambda state: (state.term, bool(state.vote)), default=None)


def _hard_state(io: IStoreIO, path: str) -> HardState:
    """Read one file of a term and a vote.

    :raises StoreDamaged: when it is not valid.
    """
    values = _read(io, path)
    term = whole_number(values.get(_TERM, ""))
    if term is None:
        raise StoreDamaged(f"{path}: {_TERM} is {values.get(_TERM)!r}")
    # Apache's members do not write this line, and they always vote.
    return HardState(term, values.get(_VOTE, ""), values.get(_JOINED, "true") == "true")


def write_hard_state(io: IStoreIO, folder: str, state: HardState) -> None:
    """Make a term and a vote durable. Blocks.

    :raises StoreError: when the disk is full or fails; then the old state is on disk, or the new
        one.
    """
    _write(io, f"{folder}/{_TERM_FILE}", {
        _VOTE: state.vote, _TERM: str(state.term), _JOINED: str(state.has_joined).lower()})


def read_checkpoint(io: IStoreIO, folder: str) -> LedgerCheckpoint:
    """Read the checkpoint, or its backup; without a valid file nothing counts as committed."""
    path = f"{folder}/{_CHECKPOINT_FILE}"
    for each in (path, f"{path}.bak"):
        if io.exists(each):
            with suppress(StoreDamaged):
                values = _read(io, each)
                return LedgerCheckpoint(*[_number(values.get(name, ""))
                                          for name in (_COMMITTED, _END)])
    return LedgerCheckpoint()


def write_checkpoint(io: IStoreIO, folder: str, checkpoint: LedgerCheckpoint) -> None:
    """Make a checkpoint durable. Blocks.

    :raises StoreError: when the disk is full or fails.
    """
    _write(io, f"{folder}/{_CHECKPOINT_FILE}", {
        _COMMITTED: str(checkpoint.committed_index), _END: str(checkpoint.end_index)})


def _number(text: str) -> int:
    """Return a number that is at least -1; -1 for any other text."""
    number = whole_number(text)
    return -1 if number is None else max(-1, number)


def _read(io: IStoreIO, path: str) -> dict[str, str]:
    """Read the lines of a file.

    :raises StoreDamaged: when the file has no such lines.
    """
    try:
        text = io.read_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise StoreDamaged(f"{path} is not a text: {error}") from error
    lines = (line.strip() for line in text.splitlines())
    values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    if not values:
        raise StoreDamaged(f"{path} has no line of the form name=value")
    return {name.strip(): value.strip() for name, value in values.items()}


def _write(io: IStoreIO, path: str, values: dict[str, str]) -> None:
    data = "".join(f"{name}={value}\n" for name, value in values.items()).encode()
    try:
        io.write_file_atomically(path, data, keep_backup=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from error
