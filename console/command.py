"""The command ``twistmq console``, which serves the console of one or more clusters.

The exit statuses are the same as for the servers: 1 for a bad command line or a start that fails,
0 after a signal.
"""

from __future__ import annotations

import ipaddress
import ssl
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from twistmq.console.page_session import PageSession
from twistmq.console.start_token import start_token
from twistmq.console.visitor import ConsoleOptions

if TYPE_CHECKING:
    from twistmq.protocol.signature import Credentials

__all__ = ["console"]

EXIT_FAILED: Final = 1
PORT: Final = 8082


@click.command()
@click.option("-n", "--namesrvAddr", "name_servers", envvar="NAMESRV_ADDR", metavar="HOST:PORT;...",
              help="The name servers of the cluster.  [environment: NAMESRV_ADDR]")
@click.option("--cluster", "clusters", multiple=True, metavar="NAME=HOST:PORT;...",
              help="A cluster under a name of your choice; may be repeated.")
@click.option("--host", default="127.0.0.1", show_default=True,
              help="The loopback address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True,
              help="The port to listen on; 0: a free one.")
@click.option("--path", "base", default="", metavar="/PATH",
              help="The path under which a reverse proxy publishes the console.")
@click.option("--trusted-proxy", "proxies", multiple=True, metavar="ADDRESS",
              help="A reverse proxy whose X-Forwarded headers count.  [default: loopback]")
@click.option("--read-only", "readonly", is_flag=True, help="Refuse every change.")
@click.option("--login", "login", type=click.Choice(["token", "account"]), default="token",
              show_default=True,
              help="What visitors log in with: the token that is printed at the start, or the "
                   "access key and the secret key of their own accounts.")
@click.option("--access-key", envvar="ROCKETMQ_ACCESS_KEY", metavar="KEY",
              help="Sign requests as this account, with --login token. The secret key is read from "
                   "ROCKETMQ_SECRET_KEY, or prompted for.")
@click.option("--tls", is_flag=True, help="Speak TLS with the servers.")
@click.option("tls_file", "--tls-config", type=click.Path(exists=True, dir_okay=False),
              metavar="FILE", help="Speak TLS with the settings tls.client.* of this Java "
                                   ".properties file.")
def console(
    name_servers: str | None, clusters: tuple[str, ...], host: str, port: int, base: str,
    proxies: tuple[str, ...], readonly: bool, login: str, access_key: str | None, tls: bool,
    tls_file: str | None,
) -> int:
    """Serve a web console for clusters of twistmq or of Apache RocketMQ.

    The console prints an address with a token. A browser with this token may do everything that the
    brokers allow the account of the console, so the console listens on the loopback interface only.
    Set TWISTMQ_CONSOLE_TOKEN to use the same token at each start.

    With --login account, the console has no account. It signs the requests of each visitor with the
    visitor's own keys, so the brokers decide about the rights of each visitor.
    """
    check_loopback(host)
    from twistmq.tools.admin.command_line import account_keys, tls_context

    has_accounts = login == "account"
    if has_accounts:
        check_no_account()
    sessions = session_makers(
        name_servers, clusters, None if has_accounts else account_keys(access_key),
        tls_context(tls_file) if tls or tls_file else None)
    options = ConsoleOptions(sessions, start_token(), checked_base(base), readonly,
                             frozenset(proxies or ("127.0.0.1", "::1")), accounts=has_accounts)
    return _serve(options, host, port)


def check_loopback(host: str) -> None:
    """:raises click.UsageError: when other hosts could connect to an address."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not is_loopback:
        raise click.UsageError(
            f"--host {host} is not a loopback address: put a reverse proxy with TLS before the "
            "console, so that its token does not cross the network in the clear")


def check_no_account() -> None:
    """:raises click.UsageError: when an account is given although visitors have accounts.

    The variable ROCKETMQ_ACCESS_KEY, which is for other commands too, is only ignored.
    """
    source = click.get_current_context().get_parameter_source("access_key")
    if source is ParameterSource.COMMANDLINE:
        raise click.UsageError(
            "--access-key is the account of a console with --login token; with --login account, "
            "each visitor has an account")


def checked_base(base: str) -> str:
    """Return the path of a reverse proxy without the slash at its end.

    :raises click.UsageError: when it is not a path.
    """
    base = base.rstrip("/")
    is_plain = base.isascii() and all(each.isalnum() or each in "/-._~" for each in base)
    if base and not (base.startswith("/") and is_plain and "//" not in base and ".." not in base):
        raise click.UsageError(f"--path {base} is not a path such as /console")
    return base


def session_makers(
    name_servers: str | None, clusters: tuple[str, ...], credentials: Credentials | None,
    tls: ssl.SSLContext | None,
) -> dict[str, Callable[[], PageSession]]:
    """Return what makes the session of each cluster, by the names of the clusters.

    :raises click.UsageError: when a cluster has no name or no address, or no cluster is given.
    """
    addresses = {"default": name_servers} if name_servers else {}
    for pair in clusters:
        name, equals, address = pair.partition("=")
        if not (name.strip() and equals and address.strip()):
            raise click.UsageError(f"--cluster {pair} is not NAME=HOST:PORT")
        addresses[name.strip()] = address.strip()
    if not addresses:
        raise click.UsageError("give name servers by -n, or clusters by --cluster")

    def maker(address: str) -> Callable[[], PageSession]:
        return lambda: PageSession(address, credentials=credentials, tls=tls)

    return {name: maker(address) for name, address in addresses.items()}


def _serve(options: ConsoleOptions, host: str, port: int) -> int:
    """Listen until a signal; :returns: the exit status."""
    try:
        from twistmq.console.site import make_site
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        click.echo("twistmq: the console needs Jinja2: pip install 'twistmq[console]'", err=True)
        return EXIT_FAILED
    from twisted.internet.error import CannotListenError
    from twisted.logger import globalLogBeginner, textFileLogObserver

    from twistmq.tools.tap import handle_signals, process_reactor

    reactor: Any = process_reactor()
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    site, resource = make_site(reactor, options)
    try:
        listening = reactor.listenTCP(port, site, interface=host)
    except CannotListenError as error:
        resource.close()
        click.echo(f"twistmq: the console cannot listen: {error}", err=True)
        return EXIT_FAILED
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"The console answers at http://{shown}:{listening.getHost().port}{options.base}"
               + ("/login" if options.accounts else f"/login?token={options.token}"))
    reactor.addSystemEventTrigger("before", "shutdown", listening.stopListening)
    reactor.addSystemEventTrigger("after", "shutdown", resource.close)
    reactor.callWhenRunning(handle_signals, reactor)
    reactor.callWhenRunning(resource.warm_up)
    reactor.run()
    return 0
