"""The files of accounts below a broker's home: which there are, reading and replacing them.

``conf/acl`` with all folders in it, and ``conf/plain_acl.yml``, which the setting
``rocketmq.acl.plain.file`` may put elsewhere. Secret keys are in them: a file that is replaced
keeps its mode, a new one is for its owner alone.

Source: PlainPermissionManager.getAllAclFiles, AclUtils.writeDataObject @4.9.4.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from twistmq.broker.api.store import read_named

__all__ = ["AclFolder"]

_ENDINGS: Final = (".yml", ".yaml")
#: Holds the credentials of the tools, no accounts.
_TOOLS_FILE: Final = "tools.yml"


class AclFolder:
    """The files that hold a broker's accounts.

    :param home: the broker's home.
    :param plain_file: path of the default file, relative to the home.
    """

    def __init__(self, home: str, plain_file: str) -> None:
        self.home = os.path.abspath(home)
        self.default_file = os.path.normpath(os.path.join(self.home, plain_file))
        self._directory = os.path.join(self.home, "conf", "acl")

    def paths(self) -> list[str]:
        """The files there are, sorted, the default one last.

        :raises OSError: when a folder cannot be listed.
        """
        left_out = {self.default_file, os.path.join(self._directory, _TOOLS_FILE)}
        found = sorted(self._below() - left_out)
        return [*found, *([self.default_file] if os.path.exists(self.default_file) else [])]

    def _below(self) -> set[str]:
        found: set[str] = set()
        if not os.path.isdir(self._directory):
            return found
        for folder, folders, names in os.walk(self._directory, onerror=_fail):
            # Differs from Apache: hidden folders hold other versions, of an editor or a mount.
            folders[:] = [name for name in folders if not name.startswith(".")]
            found.update(os.path.join(folder, name) for name in names if name.endswith(_ENDINGS))
        return found

    def read(self, path: str) -> bytes:
        """A file's bytes, none when it is not there; :raises OSError: when it cannot be read."""
        try:
            return read_named(path)
        except FileNotFoundError:
            return b""

    def write(self, path: str, data: bytes) -> None:
        """Replace a file, or make it; after a crash it is the old one or the new one, whole.

        :raises OSError: when that cannot be done; the old file stays.
        """
        target = os.path.realpath(path)  # The target of a link changes, not the link.
        os.makedirs(os.path.dirname(target), exist_ok=True)
        mode = stat.S_IRUSR | stat.S_IWUSR
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(os.stat(target).st_mode)
        temporary = f"{target}.tmp"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as stream:
                os.fchmod(stream.fileno(), mode)
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, target)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _fail(error: OSError) -> None:
    """A folder that cannot be listed is not an empty one."""
    raise error
