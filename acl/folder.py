"""The account files below a broker's home: listing, reading and replacing them.

The files are those below ``conf/acl``, including all its folders, and ``conf/plain_acl.yml``, which
can be moved with the setting ``rocketmq.acl.plain.file``. They contain secret keys: a file that is
replaced keeps its mode, and a new file is accessible only by its owner.

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
#: The file with the credentials of mqadmin, which contains no accounts.
_TOOLS_FILE: Final = "tools.yml"


class AclFolder:
    """The files that contain a broker's accounts.

    :param home: the broker's home.
    :param plain_file: the path of the default file, relative to the home.
    """

    def __init__(self, home: str, plain_file: str) -> None:
        self.home = os.path.abspath(home)
        self.default_file = os.path.normpath(os.path.join(self.home, plain_file))
        self._directory = os.path.join(self.home, "conf", "acl")

    def paths(self) -> list[str]:
        """Return the existing files in order, the default one last.

        :raises OSError: when a folder cannot be listed.
        """
        excluded = {self.default_file, os.path.join(self._directory, _TOOLS_FILE)}
        files = sorted(self._below() - excluded)
        return [*files, *([self.default_file] if os.path.exists(self.default_file) else [])]

    def _below(self) -> set[str]:
        paths: set[str] = set()
        if not os.path.isdir(self._directory):
            return paths
        for folder, folders, names in os.walk(self._directory, onerror=_fail):
            # Differs from Apache: hidden folders contain other versions, of an editor or a mount.
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths.update(os.path.join(folder, name) for name in names if name.endswith(_ENDINGS))
        return paths

    def read(self, path: str) -> bytes:
        """Return a file's bytes, empty if it is missing; :raises OSError: if it is unreadable."""
        try:
            return read_named(path)
        except FileNotFoundError:
            return b""

    def write(self, path: str, data: bytes) -> None:
        """Replace or create a file; after a crash it contains all of the old or the new data.

        :raises OSError: when this fails; the old file stays.
        """
        target = os.path.realpath(path)  # If the path is a link, its target is replaced.
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
    """Raise the error, because a folder that cannot be listed must not count as empty."""
    raise error
