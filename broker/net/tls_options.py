"""TLS settings of the listening and of the connecting side.

The names are Apache's. ``tls.config.file`` gives values too, except for ``tls.server.mode`` and
``tls.enable``. Differs from Apache in three ways, each in line with the purpose of the setting:
other settings have precedence over the file; a side with files or with checks of its peers is not
in test mode unless that is set; and ``tls.server.authClient`` asks clients for certificates unless
``tls.server.need.client.auth`` is set to another value.

Source: TlsSystemConfig, TlsHelper, BrokerStartup @5.3.3.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from twistmq.broker.config.properties_file import decode_properties, parse_properties
from twistmq.broker.config.settings import Settings, SettingValue
from twistmq.broker.errors import SettingsError
from twistmq.broker.store.regular_file import read_named

__all__ = ["DISABLED", "ENFORCING", "NONE", "OPTIONAL", "PERMISSIVE", "REQUIRE", "KeyFiles",
           "TlsClientOptions", "TlsServerOptions", "signature", "tls_client_options",
           "tls_enabled", "tls_notices", "tls_server_options"]

DISABLED: Final = "disabled"
PERMISSIVE: Final = "permissive"
ENFORCING: Final = "enforcing"
#: Whether clients are asked for a certificate, and whether they must have one.
NONE: Final = "none"
OPTIONAL: Final = "optional"
REQUIRE: Final = "require"

#: The settings of a side's certificate, key, password and trusted certificates.
_SERVER_FILES: Final = ("tls.server.certPath", "tls.server.keyPath", "tls.server.keyPassword",
                        "tls.server.trustCertPath")
_CLIENT_FILES: Final = ("tls.client.certPath", "tls.client.keyPath", "tls.client.keyPassword",
                        "tls.client.trustCertPath")
#: Settings that end the test mode of a side.
_OWN_SERVER: Final = (*_SERVER_FILES, "tls.server.authClient")
_OWN_CLIENT: Final = (*_CLIENT_FILES, "tls.client.authServer")
#: Settings that the file cannot give, because Apache reads them elsewhere.
_NOT_OF_FILE: Final = ("tls.server.mode", "tls.enable", "tls.config.file")


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """A side's certificate and key, as PEM files; an empty text means that there is no file.

    :param prefix: the prefix of the settings' names, for errors.
    """

    prefix: str
    cert: str = ""
    key: str = ""
    password: str = field(default="", repr=False)
    #: The file of trusted certificates; empty for the system's authorities.
    trust: str = ""

    def paths(self) -> list[str]:
        """The files to watch."""
        return [path for path in (self.cert, self.key, self.trust) if path]


@dataclass(frozen=True, slots=True)
class TlsServerOptions:
    """The options of the listening side.

    :param test_mode: whether it makes its own certificate, which clients cannot verify.
    :param ask: whether clients are asked for certificates: none, optional, require.
    :param verify: whether these must be trusted; if not, any certificate is accepted.
    """

    mode: str
    test_mode: bool
    ask: str
    verify: bool
    files: KeyFiles

    @property
    def is_configured(self) -> bool:
        """Whether TLS is configured: the files are then read at the start, not when needed."""
        return self.mode == ENFORCING or (self.mode == PERMISSIVE and not self.test_mode)


@dataclass(frozen=True, slots=True)
class TlsClientOptions:
    """The options of the connecting side.

    :param verify: whether servers must present a trusted certificate.
    :param check_host: whether the certificate must be valid for the host that is connected to.
    """

    verify: bool
    check_host: bool
    files: KeyFiles


class _Values:
    """The settings, with the values of ``tls.config.file`` as defaults."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._of_file = _read_file(settings)

    def value(self, name: str) -> SettingValue:
        """The effective value: the setting, else the file's value, else the default."""
        if not self._settings.is_given(name) and name in self._of_file:
            return self._of_file[name]
        return self._settings.value(name)

    def is_given(self, name: str) -> bool:
        return self._settings.is_given(name) or name in self._of_file

    def text(self, name: str) -> str:
        return str(self.value(name))

    def flag(self, name: str) -> bool:
        return bool(self.value(name))

    def in_test_mode(self, own: Sequence[str]) -> bool:
        """Whether test mode is on: by its setting, else if none of ``own`` is set."""
        name = "tls.test.mode.enable"
        return self.flag(name) if self.is_given(name) else not any(map(self.value, own))

    def files(self, names: Sequence[str]) -> KeyFiles:
        return KeyFiles(names[0].rpartition(".")[0], *map(self.text, names))


def _read_file(settings: Settings) -> dict[str, SettingValue]:
    """Read ``tls.config.file``; empty if it is the default file and cannot be read.

    :raises SettingsError: when a file that was set cannot be read, or a value is not valid.
    """
    path = settings.text("tls.config.file")
    try:
        text, _ = decode_properties(read_named(path))
    except OSError as error:
        if settings.is_given("tls.config.file"):
            raise settings.error("tls.config.file",
                                 f"cannot be read: {error.strerror}") from None
        return {}
    rows = {row.name: row for row in settings.rows}
    return {entry.key: rows[entry.key].parse(entry.value, f"{path}:{entry.first}")
            for entry in parse_properties(text, path)
            if entry.key.startswith("tls.") and entry.key in rows
            and entry.key not in _NOT_OF_FILE}


def tls_server_options(settings: Settings) -> TlsServerOptions:
    """Read the server's options; :raises SettingsError: when settings or the file are invalid."""
    mode = settings.text("tls.server.mode")
    values = _Values(settings)
    verify = values.flag("tls.server.authClient")
    name = "tls.server.need.client.auth"
    ask = values.text(name) if values.is_given(name) else REQUIRE if verify else NONE
    if values.in_test_mode(_OWN_SERVER):
        return TlsServerOptions(mode, True, NONE, False, KeyFiles("tls.server"))
    files = values.files(_SERVER_FILES)
    if mode != DISABLED and not files.cert:
        raise SettingsError("tls.server.certPath: missing, a server needs a certificate where "
                            "tls.test.mode.enable does not make one")
    return TlsServerOptions(mode, False, ask, verify, files)


def tls_enabled(settings: Settings) -> bool:
    """Whether outgoing connections use TLS: by ``tls.enable``, else if the server enforces it."""
    if settings.is_given("tls.enable"):
        return settings.flag("tls.enable")
    return settings.text("tls.server.mode") == ENFORCING


def tls_client_options(settings: Settings) -> TlsClientOptions:
    """Read the client's options; :raises SettingsError: when settings or the file are invalid."""
    values = _Values(settings)
    if values.in_test_mode(_OWN_CLIENT):
        return TlsClientOptions(False, False, KeyFiles("tls.client"))
    verify = values.flag("tls.client.authServer")
    return TlsClientOptions(verify, verify and values.flag("tls.client.host_check"),
                            values.files(_CLIENT_FILES))


def tls_notices(settings: Settings) -> list[str]:
    """Return notices about the TLS settings for the operator, one line each."""
    server = tls_server_options(settings)
    if server.mode == DISABLED:
        return []
    values = _Values(settings)
    notices = []
    unread = [name for name in _OWN_SERVER if server.test_mode and values.value(name)]
    if unread:
        notices.append(f"tls.test.mode.enable=true: {', '.join(unread)} are ignored, and the "
                       "certificate is one that clients cannot verify")
    elif server.mode == ENFORCING and server.test_mode:
        notices.append("tls.server.mode=enforcing with a certificate made at the start, which "
                       "clients cannot verify: set tls.server.certPath and tls.server.keyPath")
    path = settings.text("tls.config.file")
    if os.path.exists(path) and not os.access(path, os.R_OK):
        notices.append(f"tls.config.file {path} cannot be read, so it is ignored")
    if server.mode == PERMISSIVE and server.ask == REQUIRE:
        notices.append("tls.server.mode=permissive accepts clients without TLS, which present no "
                       "certificate: set it to enforcing")
    if server.verify and server.ask == NONE:
        notices.append("tls.server.authClient=true has no effect: tls.server.need.client.auth=none "
                       "asks no client for a certificate")
    if server.ask != NONE and not server.verify:
        notices.append(f"tls.server.need.client.auth={server.ask} accepts any certificate: set "
                       "tls.server.authClient=true to verify them")
    return notices


def signature(paths: Sequence[str]) -> object:
    """Return a value that changes with any of the files: modification time, size, inode."""
    file_states = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as error:
            file_states.append((error.errno or 0, 0, 0))
        else:
            file_states.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return file_states
