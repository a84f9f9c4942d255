"""Commit logs for tests, in the form in which a broker writes them."""

from __future__ import annotations

from pathlib import Path

from tests.integrations.tables.records import encoded
from twistmq.protocol import record


class LogWriter:
    """Writes records to files of a folder, one after the other.

    :param file_size: the length of each file in bytes.
    """

    def __init__(self, directory: Path, file_size: int = 20_000) -> None:
        self.directory = directory
        self.file_size = file_size
        self.place = 0
        #: Each record with its log offset, in order.
        self.written: list[tuple[int, bytes]] = []
        directory.mkdir(parents=True)

    def path(self, place: int) -> Path:
        """Return the file that contains a log offset."""
        return self.directory / f"{place - place % self.file_size:020d}"

    def add(self, topic: str = "T", body: bytes = b"hello", properties: str = "UNIQ_KEY\x01u\x02",
            **fields: int) -> int:
        """Write a record with the next queue offset; :returns: its log offset."""
        fields.setdefault("queue_offset", len(self.written))
        for _ in range(2):
            made = encoded(topic, body, properties, physical_offset=self.place, **fields)  # type: ignore[arg-type]
            left = self.file_size - self.place % self.file_size
            if len(made) + record.BLANK_SIZE_MIN <= left:
                break
            self.put(self.place, record.blank_record(left))
            self.place += left
        place = self.place
        self.put(place, made)
        self.written.append((place, made))
        self.place += len(made)
        return place

    def put(self, place: int, data: bytes) -> None:
        """Write any bytes at a log offset, in a new file if necessary."""
        path = self.path(place)
        if not path.exists():
            path.touch()
            with path.open("r+b") as file:
                file.truncate(self.file_size)
        with path.open("r+b") as file:
            file.seek(place % self.file_size)
            file.write(data)
