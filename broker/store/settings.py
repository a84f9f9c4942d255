"""What the store may be told, under Apache's names in snake_case (flushDiskType, flush_disk_type).

Source: MessageStoreConfig @5.3.3, for names and defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from twistmq.broker.constants import QUEUE_ENTRY_SIZE_BYTES
from twistmq.broker.errors import SettingsError

__all__ = ["StoreSettings"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Settings of one store. Sizes in bytes, times in ms, the ratio in percent."""

    store_path_root_dir: str
    #: Empty: ``commitlog`` under the root.
    store_path_commit_log: str = ""
    mapped_file_size_commit_log: int = 1024 * 1024 * 1024
    mapped_file_size_consume_queue: int = 300_000 * QUEUE_ENTRY_SIZE_BYTES
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_index_enable: bool = True
    message_index_safe: bool = False
    #: ASYNC_FLUSH or SYNC_FLUSH.
    flush_disk_type: str = "ASYNC_FLUSH"
    sync_flush_timeout: int = 5_000
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_interval_consume_queue: int = 1_000
    flush_consume_queue_thorough_interval: int = 60_000
    #: Of a message's body; topic and properties come on top.
    max_message_size: int = 4 * 1024 * 1024
    max_filter_message_size: int = 16_000
    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    max_msgs_num_batch: int = 64
    check_crc_on_recover: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is int and value <= 0:
                raise SettingsError(f"{field.name} is {value}, it must be positive")
        if not self.store_path_root_dir.startswith("/"):
            raise SettingsError(f"store_path_root_dir {self.store_path_root_dir!r} is not absolute")
        if self.flush_disk_type not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
            raise SettingsError(
                f"flush_disk_type is {self.flush_disk_type!r}, it must be ASYNC_FLUSH or SYNC_FLUSH"
            )
        if self.mapped_file_size_consume_queue % QUEUE_ENTRY_SIZE_BYTES:
            raise SettingsError(
                f"mapped_file_size_consume_queue is {self.mapped_file_size_consume_queue}, "
                f"it must be a multiple of {QUEUE_ENTRY_SIZE_BYTES}"
            )

    @property
    def sync_flush(self) -> bool:
        """Whether a send is answered only when its message is on disk."""
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def sync_flush_timeout_ms(self) -> int:
        """How long an answer may wait for that, in ms."""
        return self.sync_flush_timeout

    @property
    def commit_log_path(self) -> str:
        """Directory of the commit log."""
        return self.store_path_commit_log or self.path("commitlog")

    def path(self, *names: str) -> str:
        """Join names to the root directory."""
        return "/".join((self.store_path_root_dir.rstrip("/"), *names))
