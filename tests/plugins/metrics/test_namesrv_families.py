"""The pages of a name server, alone and in one process with a broker."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.plugins.metrics.case import NO_LIBRARY, MetricsTestCase, Samples, samples_of
from twistmq.broker.client.remoting_client import RemotingClient
from twistmq.broker.edge import boot
from twistmq.broker.edge.clock import monotonic, now_ms
from twistmq.broker.edge.services import make_namesrv_service
from twistmq.broker.errors import SettingsError
from twistmq.broker.namesrv.requests import NameServer
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.testing.name_server import make_registration
from twistmq.plugins.metrics import NameServerPlugin
from twistmq.plugins.metrics.exporter import Exporter
from twistmq.plugins.metrics.namesrv_families import PREFIX
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import StoreError
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.namesrv import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)


def of(samples: Samples, name: str, **labels: str) -> float | None:
    """Return one sample of a name server; None if it does not exist."""
    return samples.get((PREFIX + name, frozenset(labels.items())))


def exporter_of(name_server: NameServer) -> Exporter | None:
    """Return the exporter of its metrics, or None."""
    plugin = name_server.hooks.find(NameServerPlugin)
    assert plugin is not None
    return plugin.exporter

class AloneTests(TestCase):
    """A name server in its own process."""

    timeout = 60
    if NO_LIBRARY:
        skip = NO_LIBRARY

    async def start(self, **settings: str) -> None:
        found = boot.namesrv_settings(None, {
            "listenPort": "0", "bindAddress": "127.0.0.1", "metricsExporterType": "PROM",
            "metricsPromExporterPort": "0", "kvConfigPath": f"{self.mktemp()}/kvConfig.json",
            **{name.replace("__", "."): text for name, text in settings.items()}})
        self.service = make_namesrv_service(reactor, found)
        self.name_server = self.service.name_server
        self.service.startService()
        self.addCleanup(self.service.stopService)
        await self.service.started
        exporter = exporter_of(self.name_server)
        assert exporter is not None
        self.url = f"http://127.0.0.1:{exporter.port}"
        self.client = RemotingClient(reactor, now_ms, monotonic, Dispatcher({}, Hooks()))
        self.addCleanup(self.client.close)

    async def ask(self, code: int, header: CommandHeader | None = None) -> int:
        """Send a request; :returns: the code of the response."""
        reply = await self.client.invoke(
            f"127.0.0.1:{self.service.port}", code, header, timeout_ms=5000)
        return reply.code

    async def page(self, path: str = "/metrics") -> tuple[int, str]:
        def read() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(self.url + path, timeout=20) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

        found: tuple[int, str] = await deferToThread(read)
        return found

    async def samples(self) -> Samples:
        return samples_of((await self.page())[1])

    async def test_what_is_counted(self) -> None:
        """The page counts registrations and losses of brokers, requests, and connections."""
        await self.start(metrics__rpc_latency="true", metricsLabel="zone:a")
        steady_ms = self.name_server.steady.awake_ms
        names = {"broker_name": "a", "broker_addr": "10.0.0.1:10911", "cluster_name": "C"}
        register = RegisterBrokerRequestHeader(ha_server_addr="", broker_id=0, **names)
        for _ in range(2):
            self.assertEqual(await self.ask(RequestCode.REGISTER_BROKER, register), 0)
        self.name_server.routes.register(
            make_registration("10.0.0.2:10911", name="b", cluster="D"), steady_ms() - 60_000)
        self.name_server.routes.register(
            make_registration("10.0.0.3:10911", {"T": 6}, name="c"), steady_ms())
        self.assertEqual(await self.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="none")),
            ResponseCode.TOPIC_NOT_EXIST)
        self.assertEqual(await self.ask(54_321), ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        samples = await self.samples()
        for name, value, labels in (
            ("broker_names", 2, {}), ("topics", 2, {}), ("kv_entries", 0, {}),
            ("registrations_total", 3, {"result": "taken"}),
            ("registrations_total", 1, {"result": "refused"}),
            ("brokers_left_total", 0, {"reason": "unregistered"}),
            ("requests_total", 2, {"request_code": "register_broker", "response_code": "success"}),
            ("requests_total", 1, {"request_code": "get_routeinfo_by_topic",
                                   "response_code": "topic_not_exist"}),
            ("requests_total", 1, {"request_code": "unknown",
                                   "response_code": "request_code_not_supported"}),
            ("rpc_latency_seconds_count", 2, {
                "protocol_type": "remoting", "request_code": "register_broker",
                "response_code": "success", "is_long_polling": "false", "result": "success"}),
        ):
            self.assertEqual(of(samples, name, **labels), value, msg=f"{name} {labels}")
        silence = of(samples, "silence_longest_seconds")
        assert silence is not None
        self.assertTrue(60 <= silence < 90, msg=silence)
        self.assertEqual(samples["twistmq_connections", frozenset()], 1)
        lines = (await self.page())[1].splitlines()
        for wanted in ('topics{zone="a"} 2.0', 'brokers{cluster="C",zone="a"} 1.0',
                       'brokers{cluster="D",zone="a"} 1.0'):
            self.assertIn(PREFIX + wanted, lines)
        await self.ask(RequestCode.UNREGISTER_BROKER,
                       UnRegisterBrokerRequestHeader(broker_id=0, **names))
        samples = await self.samples()
        self.assertEqual(of(samples, "brokers_left_total", reason="unregistered"), 1)
        self.assertEqual(of(samples, "broker_names"), 1)
        self.assertEqual({name for name, _ in samples if name.startswith("rocketmq_")}, set())

    async def test_200_while_all_is_well(self) -> None:
        """200 while all is well; else 503, and the reasons."""
        await self.start()
        status, text = await self.page("/health")
        page: dict[str, Any] = json.loads(text)
        self.assertEqual((status, page["status"], page["name_server"], page["reasons"]), (
            200, "ok", f"127.0.0.1:{self.service.port}", []))
        self.assertEqual(set(page["checks"]), {"answers", "key-value configuration"})
        put = self.name_server.kv_config.put
        disk_full = StoreError("no space")
        self.patch(self.name_server.kv_config._file, "save", self.raising(disk_full))
        await self.assertFailure(put("n", "k", "v"), StoreError)
        status, text = await self.page("/health")
        self.assertEqual((status, json.loads(text)["reasons"]), (
            503, ["key-value configuration: no space"]))
        self.patch(self.name_server.kv_config._file, "save", lambda text: True)
        await put("n", "k", "v")
        self.assertEqual((await self.page("/health"))[0], 200)

    @staticmethod
    def raising(error: Exception) -> Any:
        def raises(*_: object) -> None:
            raise error
        return raises

    async def test_port_in_use(self) -> None:
        """It stops the start, and the error names the setting; a stop frees the port."""
        await self.start()
        port = self.url.rpartition(":")[2]
        other = make_namesrv_service(reactor, boot.namesrv_settings(None, {
            "listenPort": "0", "bindAddress": "127.0.0.1", "metricsExporterType": "PROM",
            "metricsPromExporterPort": port, "kvConfigPath": f"{self.mktemp()}/kvConfig.json"}))
        other.startService()
        error = await self.assertFailure(other.started, SettingsError)
        self.assertIn(f"metricsPromExporterPort={port} ", str(error))
        await other.stopService()
        await self.service.stopService()
        self.assertIsNone(exporter_of(self.name_server))
        await self.start(metricsPromExporterPort=port)

    async def test_without_the_setting_nothing_is_counted_and_no_port_listens(self) -> None:
        """Without the setting nothing is counted by request, and no port is opened."""
        found = boot.namesrv_settings(None, {
            "listenPort": "0", "bindAddress": "127.0.0.1",
            "kvConfigPath": f"{self.mktemp()}/kvConfig.json"})
        service = make_namesrv_service(reactor, found)
        service.startService()
        self.addCleanup(service.stopService)
        await service.started
        self.assertEqual(service.name_server.hooks.plugin_names, ["metrics"])
        self.assertEqual(service.name_server.hooks.after_response, ())
        self.assertIsNone(exporter_of(service.name_server))


class WithABrokerTests(MetricsTestCase):
    """``twistmq up``: one port for both servers."""

    def test_one_page(self) -> None:
        """The name server's metrics and health are among the broker's."""
        self.start(metricsLabel="zone:a")
        samples = self.samples()
        self.assertEqual(of(samples, "brokers"), 1)
        taken = of(samples, "requests_total", request_code="register_broker",
                   response_code="success")
        assert taken is not None
        self.assertEqual(of(samples, "registrations_total", result="taken"), taken)
        self.assertIn(("rocketmq_topic_number", frozenset()), samples)
        self.assertLessEqual({"name server: answers", "store"}, set(self.health()[1]["checks"]))
        self.assertIsNone(exporter_of(self.broker.service.namesrv.name_server))

    def test_without_the_plugin_neither_server_has_metrics(self) -> None:
        """Without the plugin neither server has metrics."""
        found = boot.namesrv_settings(None, {"plugins.disabled": "metrics"})
        self.assertEqual(make_namesrv_service(reactor, found).name_server.hooks.plugin_names, [])
