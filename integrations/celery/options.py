"""The options of the transport, from the URL and from ``broker_transport_options``."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final

import msgspec
from kombu.exceptions import ChannelError

from twistmq.client import Credentials

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


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The transport options.

    :raises msgspec.ValidationError: when a value has the wrong type or is out of bounds.
    """

    #: The addresses of name servers; with None, the address in the URL is the only one.
    name_servers: list[str] | str | None = None
    #: The beginning of the names of all topics and groups.
    prefix: str = "kombu"
    #: The number of queues of a new topic on each broker. With one, a queue keeps its order.
    topic_queues: int = 1
    #: The time after which another worker gets the messages of a worker that died, seconds. It is
    #: extended while a worker has them, so a task may take longer.
    invisible_s: float = 60.0
    #: The longest delay that the broker accepts, seconds: its setting ``timerMaxDelaySec``, less a
    #: margin for clocks that differ.
    delay_max_s: float = 3 * 86_400 - 600
    #: The number of attempts after which a message becomes a dead letter.
    max_attempts: int = 16
    #: The time-out of a request, seconds.
    timeout_s: float = 3.0

    def __post_init__(self) -> None:
        for name, low in (("topic_queues", 1), ("invisible_s", 1), ("delay_max_s", 1),
                          ("max_attempts", 1), ("timeout_s", 0.01)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least {low}")


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
