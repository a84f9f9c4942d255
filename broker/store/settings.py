"""The settings of the store, under Apache's names in snake_case (flushDiskType, flush_disk_type).

Source: MessageStoreConfig @5.3.3, for names and defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from twistmq.broker.constants import BATCH_QUEUE_ENTRY_SIZE_BYTES, QUEUE_ENTRY_SIZE_BYTES
from twistmq.broker.errors import SettingsError
from twistmq.protocol.decimal_text import whole_number

__all__ = ["WHOLE_ENTRIES", "StoreSettingFault", "StoreSettings"]

#: The settings that must be multiples of the size of an entry, and that size in bytes.
WHOLE_ENTRIES = {
    "mapped_file_size_consume_queue": QUEUE_ENTRY_SIZE_BYTES,
    "mapper_file_size_batch_consume_queue": BATCH_QUEUE_ENTRY_SIZE_BYTES,
}

_MAY_BE_ZERO = frozenset({
    "file_reserved_time", "delete_commit_log_files_interval",
    "delete_consume_queue_files_interval", "redelete_hanged_file_interval",
})


class StoreSettingFault(SettingsError):
    """A value that the store does not accept.

    :param field: the field of :class:`StoreSettings`.
    :param why: the part of the text that follows "the value".
    """

    def __init__(self, field: str, value: object, why: str) -> None:
        super().__init__(f"{field} is {value!r}: the value {why}")
        self.field = field
        self.why = why


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of one store. Sizes are in bytes, times in ms, ratios in percent."""

    store_path_root_dir: str
    #: An empty value stands for ``commitlog`` under the root.
    store_path_commit_log: str = ""
    mapped_file_size_commit_log: int = 1024 * 1024 * 1024
    mapped_file_size_consume_queue: int = 300_000 * QUEUE_ENTRY_SIZE_BYTES
    mapper_file_size_batch_consume_queue: int = 300_000 * BATCH_QUEUE_ENTRY_SIZE_BYTES
    #: Whether queue entries get a unit in a separate file, with store time and filter bitmap.
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = 48 * 1024 * 1024
    #: The expected number of bits in the bitmap of a unit.
    bit_map_length_consume_queue_ext: int = 112
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000
    warm_maped_file_enable: bool = False
    flush_least_pages_when_warm_maped_file: int = 4096
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_index_enable: bool = True
    message_index_safe: bool = False
    #: Either ASYNC_FLUSH or SYNC_FLUSH.
    flush_disk_type: str = "ASYNC_FLUSH"
    sync_flush_timeout: int = 5_000
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_interval_consume_queue: int = 1_000
    flush_consume_queue_thorough_interval: int = 60_000
    #: The limit for the body of a message; topic and properties are not included.
    max_message_size: int = 4 * 1024 * 1024
    max_filter_message_size: int = 16_000
    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    max_msgs_num_batch: int = 64
    check_crc_on_recover: bool = True
    #: Hours of the day, 0 to 23, separated by semicolons.
    delete_when: str = "04"
    #: The number of hours since the last write to a commit-log file.
    file_reserved_time: int = 72
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    clean_file_forcibly_enable: bool = True
    delete_file_batch_max: int = 10
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    redelete_hanged_file_interval: int = 120_000
    clean_resource_interval: int = 10_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is int and value < (field.name not in _MAY_BE_ZERO):
                raise self._fault(field.name, "must be positive")
        if not self.store_path_root_dir.startswith("/"):
            raise self._fault("store_path_root_dir", "is not an absolute path")
        # The default folder under the root is one folder, even if its name contains a comma.
        if ("," in self.store_path_commit_log
                and self.store_path_commit_log != self.path("commitlog")):
            # Differs from Apache, whose files go to the folders in turn.
            raise self._fault("store_path_commit_log", "names several folders, the log has one")
        if self.flush_disk_type not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
            raise self._fault("flush_disk_type", "must be ASYNC_FLUSH or SYNC_FLUSH")
        for name, entry_size in WHOLE_ENTRIES.items():
            if getattr(self, name) % entry_size:
                raise self._fault(name, f"must be a multiple of {entry_size}")
        if not self.delete_hours <= frozenset(range(24)):
            raise self._fault("delete_when",
                              "must be hours of the day, 0 to 23, separated by semicolons")

    def _fault(self, field: str, why: str) -> StoreSettingFault:
        return StoreSettingFault(field, getattr(self, field), why)

    @property
    def light_queues(self) -> bool:
        """Whether messages enter the light queues that they name. Apache has a switch for each
        half."""
        return self.enable_lmq and self.enable_multi_dispatch

    @property
    def sync_flush(self) -> bool:
        """Whether a send is answered only after its message is on disk."""
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def sync_flush_timeout_ms(self) -> int:
        """How long the answer may wait for that, in ms."""
        return self.sync_flush_timeout

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of the day at which expired files are removed; -1 stands for a bad value."""
        hours = (hour.strip() for hour in self.delete_when.rstrip(";").split(";"))
        numbers = (whole_number(hour) for hour in hours)
        return frozenset(-1 if number is None else number for number in numbers)

    @property
    def max_used_ratio(self) -> float:
        """The used fraction of a disk above which expired files are removed at any hour, 0.0 to
        1.0.

        This ratio and the next two have bounds. Source: getDiskMaxUsedSpaceRatio,
        CleanCommitLogService.
        """
        return _between(10, self.disk_max_used_space_ratio, 95)

    @property
    def clean_forcibly_ratio(self) -> float:
        """The used fraction of a disk above which files of any age are removed, 0.0 to 1.0."""
        return _between(30, self.disk_space_clean_forcibly_ratio, 85)

    @property
    def warning_ratio(self) -> float:
        """The used fraction of a disk above which messages are refused, 0.0 to 1.0."""
        return _between(35, self.disk_space_warning_level_ratio, 90)

    @property
    def commit_log_path(self) -> str:
        """The directory of the commit log."""
        return self.store_path_commit_log or self.path("commitlog")

    def path(self, *names: str) -> str:
        """Append names to the root directory."""
        return "/".join((self.store_path_root_dir.rstrip("/"), *names))


def _between(minimum: int, percent: int, maximum: int) -> float:
    """Return a percentage, limited to bounds, as a fraction."""
    return max(minimum, min(percent, maximum)) / 100
