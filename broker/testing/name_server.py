"""A name server for tests, without a port, with a disk in memory and a test clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twistmq.broker.config.setting_rows import namesrv_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.namesrv.registration import Registration
from twistmq.broker.namesrv.requests import NameServer
from twistmq.broker.remoting.messages import Handled, Reply, Request
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from twistmq.protocol.command import VERSION, RemotingCommand
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.header import CommandHeader, ext_fields_of

__all__ = ["PortlessNameServer", "StillChannel", "make_registration"]

_numbers = itertools.count(1)


class StillChannel:
    """A connection over which nothing is sent; ``active`` shows whether it was closed."""

    remote_address = "127.0.0.1:50000"
    remote_host = bytes((127, 0, 0, 1)) + (50_000).to_bytes(4, "big")
    local_port = 9876

    def __init__(self) -> None:
        self.channel_id = next(_numbers)
        self.active = True

    @property
    def charged_address(self) -> str:
        return self.remote_address

    def send_oneway(self, code: int, header: CommandHeader | None, body: bytes = b"") -> None:
        raise AssertionError(f"request {code} to a peer that is not there")

    def call(
        self, code: int, header: CommandHeader | None, body: bytes = b"", *, timeout_ms: int
    ) -> Deferred[RemotingCommand]:
        raise AssertionError(f"request {code} to a peer that is not there")

    def close(self) -> None:
        self.active = False


def make_registration(
    address: str = "10.0.0.1:10911", topics: dict[str, int] | None = None, *,
    name: str = "a", broker_id: int = 0, cluster: str = "C", counter: int = 1, state: int = 0,
    **others: Any,
) -> Registration:
    """Make the registration of a broker.

    :param topics: the ``perm`` of each topic; None for two default topics.
    :param counter: together with ``state``, the version of its data.
    :param others: further fields of a Registration.
    """
    perms = {"T": 6, "U": 6} if topics is None else topics
    wrapper = TopicConfigSerializeWrapper(
        {topic: TopicConfig(topic, 4, 4, perm) for topic, perm in perms.items()},
        DataVersion(state, 0, counter))
    return Registration(**{
        "cluster": cluster, "address": address, "broker_name": name, "broker_id": broker_id,
        "ha_address": f"{address}-ha", "topics": wrapper, "channel": StillChannel(), **others})


class PortlessNameServer(NameServer):
    """A started name server.

    :param overrides: settings, as on a command line; the KV configuration is in
        ``/ns/kvConfig.json``.
    :param disk: the disk of an earlier name server, to start from its files.
    :param settings: all settings, in place of ``overrides``.
    :param clock: the clock for the pauses of long registrations, in which other requests run; None:
        they never pause.
    """

    def __init__(
        self, overrides: dict[str, str] | None = None, *, disk: MemoryDisk | None = None,
        now_ms: int = 0, clock: Callable[[], int] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings.load(
            namesrv_rows(), None, {"kvConfigPath": "/ns/kvConfig.json", **(overrides or {})})
        self.disk = disk or MemoryDisk()
        #: The time of the latest request.
        self.time_ms = now_ms
        super().__init__(
            self.settings, self.disk, now_ms=lambda: self.time_ms if clock is None else clock())
        self._rows = {row.code: row for row in self.handlers()}
        self.start()

    def ask(
        self, code: int, header: CommandHeader | dict[str, str] | None = None, body: bytes = b"",
        *, version: int = VERSION, channel: StillChannel | None = None, now_ms: int = 0,
    ) -> Reply:
        """Send a request like a connection, and return the reply, which may be a refusal."""
        try:
            answer = self.handle(code, header, body, version=version, channel=channel,
                                 now_ms=now_ms)
            if isinstance(answer, Deferred):
                answer = _fired(answer)
        except BrokerError as error:
            return Reply(error.response_code, remark=str(error))
        assert isinstance(answer, Reply), answer
        return answer

    def handle(
        self, code: int, header: CommandHeader | dict[str, str] | None = None, body: bytes = b"",
        *, version: int = VERSION, channel: StillChannel | None = None, now_ms: int = 0,
    ) -> Handled:
        """Send a request like a connection; return the reply, or the source of a later reply."""
        self.time_ms = now_ms
        fields = header if isinstance(header, dict) else ext_fields_of(header) if header else {}
        command = RemotingCommand(code, version=version, body=body,
                                  ext_fields=msgspec.Raw(msgspec.json.encode(fields)))
        row = self._rows[code]
        return row.handle(Request(
            command, command.header(row.header), channel or StillChannel(), now_ms))


def _fired(answer: Deferred[Reply]) -> Reply:
    """Return the result of a fired Deferred; :raises BrokerError: when it failed with one."""
    results: list[Reply | Failure] = []
    answer.addBoth(results.append)
    [result] = results
    if isinstance(result, Failure):
        result.raiseException()
    assert isinstance(result, Reply)
    return result
