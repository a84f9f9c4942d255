"""Creates the client of the bridge from the options for servers, keys and time-outs.

Tasks receive a ``ClientSettings``, which can be pickled, and create their own client from it.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final

from twistmq.client.base.times import TIMESTAMP_S_MAX
from twistmq.client.blocking.client import Client
from twistmq.client.shell.tls import client_context
from twistmq.integrations.tables.options import BATCH_READ, STREAM_READ, OptionError, Options
from twistmq.protocol.addresses import split_addresses
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.signature import Credentials

__all__ = ["ClientSettings", "TlsSettings", "client_settings", "offset_at"]

_READS: Final = (BATCH_READ, STREAM_READ)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The paths of PEM files, with "" for a file that is not given, and the checks of servers."""

    ca_file: str
    cert_file: str
    key_file: str
    verify: bool
    check_host: bool = True
    key_password: str = field(default="", repr=False)

    def context(self) -> ssl.SSLContext:
        """Read the files; :raises OptionError: when one cannot be read."""
        return client_context(
            self.ca_file, self.cert_file, self.key_file, self.key_password, verify=self.verify,
            check_host=self.check_host, trust_name="option tls.caFile",
            cert_name="option tls.certFile", refuse=OptionError)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The parameters of a client."""

    name_servers: str
    timeout_s: float
    connect_timeout_s: float
    retries: int
    retry_wait_s: float
    credentials: Credentials | None = field(default=None, repr=False)
    tls: TlsSettings | None = None
    namespace: str = ""
    #: How long the bridge waits for a broker or name server that is away, and the time between the
    #: first and the second look at a topic that seems to be deleted.
    wait_s: float = 120.0
    deletion_check_s: float = 5.0

    def client(self) -> Client:
        """Create a client; :raises OptionError: when a TLS file cannot be read."""
        return Client(
            self.name_servers, timeout_s=self.timeout_s,
            connect_timeout_s=self.connect_timeout_s, retries=self.retries,
            retry_wait_s=self.retry_wait_s, credentials=self.credentials,
            tls=None if self.tls is None else self.tls.context(), namespace=self.namespace)


def client_settings(options: Options) -> ClientSettings:
    """Read the options of the connection; :raises OptionError: when they contradict each other."""
    name_servers = options.name_servers()
    try:
        split_addresses(name_servers)
    except ValueError as error:
        raise OptionError(f"option nameServer: {error}") from None
    reads = options.where in _READS
    return ClientSettings(
        name_servers,
        options.integer("pullTimeoutMs" if reads else "sendTimeoutMs") / 1000,
        options.integer("connectTimeoutMs") / 1000,
        options.integer("fetchOffset.numRetries" if reads else "retryTimes"),
        options.integer("fetchOffset.retryIntervalMs") / 1000,
        _credentials(options), _tls(options), options.text("namespace"),
        options.integer("serverWaitMs") / 1000,
        options.integer("deletionCheckMs") / 1000 if reads else 0.0)


def _credentials(options: Options) -> Credentials | None:
    access_key, secret_key = options.text("accessKey"), options.text("secretKey")
    if bool(access_key) != bool(secret_key):
        missing = "secretKey" if access_key else "accessKey"
        raise OptionError(f"option {missing}: missing, it is required with the other key")
    if not access_key:
        if options.is_given("securityToken"):
            raise OptionError("option securityToken: it requires accessKey and secretKey")
        return None
    return Credentials(access_key, secret_key, options.text("securityToken"))


def _tls(options: Options) -> TlsSettings | None:
    if not options.flag("tls"):
        for name in ("tls.caFile", "tls.certFile", "tls.keyFile", "tls.keyPassword"):
            if options.is_given(name):
                raise OptionError(f"option {name}: it has no meaning without tls=true")
        return None
    if options.is_given("tls.keyFile") and not options.is_given("tls.certFile"):
        raise OptionError("option tls.certFile: missing, it is required with tls.keyFile")
    return TlsSettings(options.text("tls.caFile"), options.text("tls.certFile"),
                       options.text("tls.keyFile"), options.flag("tls.verify"),
                       options.flag("tls.checkHost"), options.text("tls.keyPassword"))


def offset_at(client: Client, queue: MessageQueue, time_ms: int) -> int:
    """Return the first offset of a queue that was stored at a time or later, or its end.

    :param time_ms: the time in Unix ms, as Spark and records have it. A time after the year 9999
        counts as its end, and one before that many years ago as the beginning.
    """
    bound_s = TIMESTAMP_S_MAX
    return client.search_offset(queue, max(-bound_s, min(time_ms / 1000, bound_s)))
