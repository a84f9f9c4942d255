"""All accounts of a broker: read from its files, watched, and changed by requests.

An access key belongs to the first file that contains it; a second account with the same key is
logged and left out. The white addresses of all files are combined. If a file becomes unreadable or
invalid, its previous contents stay in effect and one line is logged. At the start of the broker
such a file stops the start, because a broker must not run with fewer accounts or white addresses
than it was given.

Differs from Apache: a changed file is read again as a whole. Therefore an account deleted in an
editor is no longer known, white addresses do not accumulate, and a change by request takes effect
at once. A change whose result could not be read again is refused before it is written. Apache's
broker keeps a part of the old contents, and writes files that it cannot load afterwards.

Source: PlainPermissionManager, AclFileWatchService @4.9.4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from twisted.logger import Logger

from twistmq.acl.accounts import Account, PlainAccessConfig, check_config
from twistmq.acl.acl_file import (
    AclFile,
    read_acl_file,
    with_account,
    with_white_addresses,
    without_account,
)
from twistmq.acl.addresses import AddressPattern
from twistmq.acl.errors import AclError
from twistmq.acl.folder import AclFolder
from twistmq.broker.api.bodies import DataVersion

__all__ = ["AccountTable"]

#: Size of the cache that records whether an address is on the white list.
_ADDRESSES_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class _Content:
    """The parsed contents of a file, with a digest that shows when it has changed."""

    digest: bytes
    file: AclFile
    #: Unix ms; used as the time of the version if the file has no version.
    read_ms: int


class AccountTable:
    """The accounts in use.

    :param folder: the files with the accounts.
    :param now_ms: the clock, Unix ms.
    """

    log = Logger()

    def __init__(self, folder: AclFolder, now_ms: Callable[[], int]) -> None:
        self._folder = folder
        self._now_ms = now_ms
        self._files: dict[str, _Content] = {}
        #: Digests of files that could not be used, so that each is logged once.
        self._refused: dict[str, bytes] = {}
        #: The accounts by access key, and the file of each account.
        self.accounts: dict[str, Account] = {}
        self._paths: dict[str, str] = {}
        #: Whether there is any white address for all accounts.
        self.has_white = False
        self._white: tuple[AddressPattern, ...] = ()
        #: Results by address, because each request of a connection asks for this.
        self._is_white: dict[str, bool] = {}

    # --- queries

    def is_white(self, address: str) -> bool:
        """Whether requests from an address need no account."""
        is_match = self._is_white.get(address)
        if is_match is None:
            if len(self._is_white) >= _ADDRESSES_MAX:
                self._is_white.clear()
            is_match = any(pattern.matches(address) for pattern in self._white)
            self._is_white[address] = is_match
        return is_match

    def configs(self) -> list[PlainAccessConfig]:
        """Return the accounts as they are written in the files, each key once."""
        by_key: dict[str | None, PlainAccessConfig] = {}
        for content in self._files.values():
            for config in content.file.configs:
                by_key.setdefault(config.access_key, config)
        return list(by_key.values())

    def white_addresses(self) -> list[str]:
        """Return the white addresses of all files, as they are written there."""
        return [text for content in self._files.values() for text in content.file.white_addresses]

    def versions(self) -> dict[str, DataVersion]:
        """Return the version of each file that has contents."""
        return {path: content.file.version or DataVersion(timestamp=content.read_ms)
                for path, content in self._files.items() if content.file.has_data}

    def default_version(self) -> DataVersion:
        """Return the version of the default file."""
        return self.versions().get(self._folder.default_file, DataVersion())

    # --- files

    def load(self) -> None:
        """Read all files.

        :raises AclError: when a file is not valid; the text names it.
        """
        path = self._folder.home
        self._files = {}
        try:
            for path in self._folder.paths():
                self._files[path] = self._parse(self._folder.read(path))
        except OSError as error:
            raise AclError(f"{error.filename or path}: {error.strerror}") from None
        except AclError as error:
            raise AclError(f"{path}: {error}") from None
        self._join()

    def reload(self) -> bool:
        """Read the files that changed; :returns: whether there were any."""
        try:
            paths = self._folder.paths()
        except OSError as error:
            self.log.error("the accounts' files cannot be listed: {reason}", reason=error.strerror)
            return False
        files: dict[str, _Content] = {}
        for path in paths:
            content = self._read_again(path)
            if content is not None:
                files[path] = content
        changed = list(files.items()) != list(self._files.items())
        if changed:
            self._files = files
            self._join()
            self.log.info("accounts were read again: {count} from {files} files",
                          count=len(self.accounts), files=len(files))
        return changed

    def _read_again(self, path: str) -> _Content | None:
        """Return the current content of a file; None if it was never valid."""
        old_content = self._files.get(path)
        try:
            data = self._folder.read(path)
            if old_content is not None and _digest(data) == old_content.digest:
                self._refused.pop(path, None)
                return old_content
            content = self._parse(data)
            if old_content is not None and old_content.file.has_data and not content.file.has_data:
                raise AclError("it is empty")
        except (AclError, OSError) as error:
            reason = str(error) if isinstance(error, AclError) else str(error.strerror)
            mark = _digest(data) if isinstance(error, AclError) else reason.encode()
            if self._refused.get(path) != mark:
                self._refused[path] = mark
                self.log.error("{path} cannot be used, its earlier accounts stay valid: {reason}",
                               path=path, reason=reason)
            return old_content
        self._refused.pop(path, None)
        return content

    def _parse(self, data: bytes) -> _Content:
        return _Content(_digest(data), read_acl_file(data), self._now_ms())

    def _join(self) -> None:
        accounts: dict[str, Account] = {}
        paths: dict[str, str] = {}
        for path, content in self._files.items():
            for account in content.file.accounts:
                if account.access_key in accounts:
                    self.log.warn("the access key {key} is defined more than once, the account in "
                                  "{path} is left out", key=account.access_key, path=path)
                    continue
                accounts[account.access_key] = account
                paths[account.access_key] = path
        self.accounts, self._paths = accounts, paths
        self._white = tuple(
            pattern for content in self._files.values() for pattern in content.file.white_patterns)
        self.has_white = bool(self._white)
        self._is_white.clear()

    # --- changes

    def update_account(self, config: PlainAccessConfig) -> None:
        """Add an account to the default file, or change it in its file.

        :raises AclError: when the account is not valid, or the file cannot be written.
        """
        check_config(config)
        assert config.access_key is not None
        path = self._paths.get(config.access_key, self._folder.default_file)
        self._change(path, lambda data: with_account(data, config, self._now_ms()))

    def delete_account(self, access_key: str) -> bool:
        """Remove an account from its file; :returns: False if there is no such account.

        :raises AclError: when the file cannot be written.
        """
        path = self._paths.get(access_key)
        if path is None:
            return False
        self._change(path, lambda data: without_account(data, access_key, self._now_ms()))
        return True

    def update_white_addresses(self, addresses: Sequence[str], path: str | None) -> bool:
        """Set the white addresses of a file.

        :param path: the file; None or empty for the default file.
        :returns: False if ``path`` is not an account file.
        :raises AclError: when an address is not valid, or the file cannot be written.
        """
        target = path or self._folder.default_file
        # Differs from Apache, which writes to any file below the broker's home that the request
        # names.
        if target != self._folder.default_file and target not in self._folder.paths():
            return False
        self._change(target, lambda data: with_white_addresses(
            data, list(addresses), self._now_ms()))
        return True

    def _change(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Change a file and use the result, or leave the file as it is."""
        try:
            data = change(self._folder.read(path))
            content = self._parse(data)
            self._folder.write(path, data)
        except OSError as error:
            raise AclError(f"{path} cannot be written: {error.strerror}") from None
        self._refused.pop(path, None)
        self._files = {**self._files, path: content}
        if not self.reload():
            self._join()


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
