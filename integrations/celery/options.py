"""The options of the transport, from the URL and from ``broker_transport_options``."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from kombu.exceptions import ChannelError

from twistmq.client import Credentials
from twistmq.integrations.base.options import QueueOptions

if TYPE_CHECKING:
    from twistmq.client.shell.arguments import ClientArguments

__all__ = ["Options", "client_options", "options_of"]

#: The transport options of kombu itself and of other transports, which have no meaning here.
_OF_KOMBU: Final = frozenset((
    "errback", "max_retries", "interval_start", "interval_step", "interval_max",
    "connect_retries_timeout", "polling_interval", "body_encoding", "deadletter_queue",
    "client_properties", "confirm_publish"))
#: The parameters of ``broker_use_ssl`` that give the client's certificate.
_FILES: Final = ("certfile", "keyfile", "keyfile_password")


class Options(QueueOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The transport options.

    :raises msgspec.ValidationError: when a value has the wrong type or is out of bounds.
    """

    LEAST: ClassVar[dict[str, float]] = {**QueueOptions.LEAST, "timeout_s": 0.01}

    prefix: str = "kombu"
    #: The addresses of name servers; with None, the address in the URL is the only one.
    name_servers: list[str] | str | None = None
    #: The time-out of a request, seconds.
    timeout_s: float = 3.0


def options_of(transport_options: dict[str, Any]) -> Options:
    """Read the transport options; :raises ChannelError: when one is not known or not valid."""
    own = {name: value for name, value in transport_options.items() if name not in _OF_KOMBU}
    try:
        return msgspec.convert(own, Options)
    except msgspec.ValidationError as error:
        raise ChannelError(f"broker_transport_options: {error}") from None


def client_options(connection: Any, options: Options) -> tuple[list[str] | str, ClientArguments]:
    """Return the name servers and the options of the client for a connection of kombu.

    The user and the password of the URL are the account, and its path is the namespace.
    """
    name_servers = options.name_servers or [
        f"{connection.hostname or '127.0.0.1'}:{connection.port or 9876}"]
    arguments: ClientArguments = {"timeout_s": options.timeout_s}
    if connection.connect_timeout:
        arguments["connect_timeout_s"] = float(connection.connect_timeout)
    if connection.userid:
        arguments["credentials"] = Credentials(connection.userid, connection.password or "")
    namespace = (connection.virtual_host or "").strip("/")
    if namespace:
        arguments["namespace"] = namespace
    if connection.ssl:
        arguments["tls"] = _tls_context(connection.ssl)
    return name_servers, arguments


def _tls_context(value: Any) -> ssl.SSLContext:
    """Return a TLS context for ``broker_use_ssl``: True, a context, or parameters of ``ssl``."""
    if isinstance(value, ssl.SSLContext):
        return value
    parameters = dict(value) if isinstance(value, dict) else {}
    context = ssl.create_default_context(cafile=parameters.pop("ca_certs", None))
    certificate, key, password = (parameters.pop(name, None) for name in _FILES)
    if certificate:
        context.load_cert_chain(certificate, key, password)
    verify_mode = parameters.pop("cert_reqs", ssl.CERT_REQUIRED)
    if verify_mode == ssl.CERT_NONE:
        context.check_hostname = False
    context.verify_mode = verify_mode
    if parameters:
        raise ChannelError(f"broker_use_ssl: unknown {', '.join(sorted(parameters))}")
    return context
