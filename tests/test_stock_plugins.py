"""Each stock plugin is disabled: its features are refused, and all others work."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.plugin.discovery import ENTRY_POINT_GROUP
from twistmq.broker.testing import RawClient, RunningBroker, running_broker
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from twistmq.protocol.headers.pop import PollingInfoRequestHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.protocol.record import SYS_TRANSACTION_PREPARED

NOT_SUPPORTED: Final = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
#: Settings that have plugins do something where they would not by themselves.
SETTINGS: Final = {"enablePropertyFilter": "true", "trace.server": "true",
                   "spark.export_topics": "T", "brokerName": "stock"}


def stock_plugins() -> dict[str, object]:
    """Return the class of each plugin of twistmq, by the plugin's name."""
    return {point.name: point.load() for point in entry_points(group=ENTRY_POINT_GROUP)
            if point.value.startswith("twistmq.")}


def codes_of(*plugins: tuple[str, object]) -> set[int]:
    """Return the request codes that a broker with these plugins serves."""
    box = KernelBox(plugins)
    try:
        return set(box.kernel.handler_table())
    finally:
        box.stop()


# --- what each plugin does: the code of the answer to a request that only it makes succeed


def _send(client: RawClient, topic: str = "T", sys_flag: int = 0, **properties: str) -> int:
    header = send_header(topic, 1_700_000_000_000, properties=properties)
    header.sys_flag = sys_flag
    return client.request(RequestCode.SEND_MESSAGE_V2, header, b"body").code


def _half(client: RawClient) -> int:
    return _send(client, sys_flag=SYS_TRANSACTION_PREPARED, TRAN_MSG="true", PGROUP="g")


def _sql(client: RawClient) -> int:
    return client.request(RequestCode.PULL_MESSAGE, pull_header(
        "T", expression="a IS NULL", expression_type="SQL92")).code


def _pop(client: RawClient) -> int:
    return client.request(RequestCode.POLLING_INFO, PollingInfoRequestHeader(
        consumer_group="g", topic="T", queue_id=-1)).code


def _static(client: RawClient) -> int:
    header = CreateTopicRequestHeader(
        topic="Static", default_topic="TBW102", read_queue_nums=0, write_queue_nums=0, perm=6,
        topic_filter_type="SINGLE_TAG")
    return client.request(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, json.dumps({
        "topic": "Static", "bname": SETTINGS["brokerName"], "epoch": 1}).encode()).code


def _asks(code: RequestCode, **body: object) -> Callable[[RawClient], int]:
    def ask(client: RawClient) -> int:
        return client.request(code, None, json.dumps(body).encode()).code
    return ask


#: By plugin: a request, and what answers it without the plugin.
DEEDS: Final[dict[str, tuple[Callable[[RawClient], int], int]]] = {
    "admin": (_asks(RequestCode.GET_BROKER_RUNTIME_INFO), NOT_SUPPORTED),
    "filter_sql92": (_sql, ResponseCode.SYSTEM_ERROR),
    "ha": (_asks(RequestCode.GET_BROKER_HA_STATUS), NOT_SUPPORTED),
    "orderly": (_asks(RequestCode.LOCK_BATCH_MQ, consumerGroup="g", clientId="c", mqSet=[]),
                NOT_SUPPORTED),
    "pop": (_pop, NOT_SUPPORTED),
    "schedule": (lambda client: _send(client, DELAY="1"), NOT_SUPPORTED),
    "static_topic": (_static, NOT_SUPPORTED),
    "timer": (lambda client: _send(client, TIMER_DELAY_SEC="60"), ResponseCode.SYSTEM_ERROR),
    "transaction": (_half, NOT_SUPPORTED),
}
#: Plugins that no single request shows; what is asked of them is in their codes, and below.
OTHERS: Final = {
    "acl", "auth", "flow_control", "metrics", "reply", "retry", "spark_bridge", "trace"}
#: Of these, those that put rows into the runtime table, and what the rows' names begin with.
ROWS: Final = {"flow_control": "flowControl", "spark_bridge": "sparkExport", "trace": "trace"}


#: Plugins that answer nothing and show nothing: what they do comes after minutes, to clients of
#: broadcast groups alone, or in a group of brokers alone.
QUIET: Final = {"broadcast_offset", "cold_consumer", "dledger"}


class DisabledTests(SynchronousTestCase):
    """A broker as it is installed, but for one plugin."""

    def test_each_is_known_here(self) -> None:
        """A new stock plugin needs an entry that shows whether it is on."""
        self.assertEqual(set(DEEDS) | OTHERS | QUIET, set(stock_plugins()))

    def test_none_disabled(self) -> None:
        """All checks succeed, so a failure shows something."""
        with running_broker(SETTINGS) as broker, broker.client() as client:
            self.works(broker, client)
            for name, (deed, _) in DEEDS.items():
                self.assertIn(deed(client), (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND),
                              msg=name)
            self.assertEqual(self.with_rows(broker), set(ROWS))

    def test_each_disabled(self) -> None:
        """Its codes are refused and its features fail, but other plugins and sends still work."""
        for name in stock_plugins():
            with running_broker({**SETTINGS, "plugins.disabled": name}) as broker:
                with broker.client() as client:
                    self.works(broker, client)
                    self.answers(client, without={name})
                self.assertEqual(self.with_rows(broker), set(ROWS) - {name}, msg=name)
                self.assertEqual(self.flushLoggedErrors(), [])

    def test_all_disabled(self) -> None:
        """The kernel alone is a broker."""
        names = stock_plugins()
        with (running_broker({**SETTINGS, "plugins.disabled": ",".join(names)}) as broker,
              broker.client() as client):
            self.assertEqual(broker.kernel.hooks.plugin_names, [])
            self.works(broker, client)
            self.answers(client, without=set(names))
            self.assertEqual(self.with_rows(broker), set())

    def test_over_a_store_with_its_files(self) -> None:
        """Files of plugins in the store do not prevent a start with or without the plugins."""
        folder = self.mktemp()
        with running_broker(SETTINGS, data=folder) as broker, broker.client() as client:
            self.works(broker, client)
            for deed, _ in DEEDS.values():
                deed(client)
        for name in (*stock_plugins(), ""):
            with (running_broker({**SETTINGS, "plugins.disabled": name}, data=folder) as broker,
                  broker.client() as client):
                self.assertEqual(client.pull("T")[0].body, b"plain", msg=name)
                _send(client)

    def works(self, broker: RunningBroker, client: RawClient) -> None:
        """Check the features of the kernel: send, pull, offsets, groups, queries."""
        client.send("T", b"plain", keys="k", properties={"UNIQ_KEY": "7F" * 16})
        self.assertEqual([each.body for each in client.pull("T")], [b"plain"])
        heartbeat = json.dumps({
            "clientID": "c", "producerDataSet": [], "consumerDataSet": [{
                "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "unitMode": False,
                "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}]}).encode()
        self.assertEqual(client.request(RequestCode.HEART_BEAT, None, heartbeat).code, 0)
        reply = client.request(RequestCode.UPDATE_CONSUMER_OFFSET,
                               UpdateConsumerOffsetRequestHeader(
                                   consumer_group="g", topic="T", queue_id=0, commit_offset=1))
        self.assertEqual(reply.code, 0)
        self.assertRaises(RequestRefused, client.pull, "no such topic")
        # Sends of an order that gave up go to the retry topic, whoever delays and counts tries.
        self.assertEqual(_send(client, "%RETRY%g"), 0)

    def answers(self, client: RawClient, without: set[str]) -> None:
        """Check the codes and features of the enabled plugins, and the refusal of the others."""
        kernel = codes_of()
        for name, plugin in stock_plugins().items():
            for code in sorted(codes_of((name, plugin)) - kernel):
                answer = client.request(code).code
                self.assertEqual(answer == NOT_SUPPORTED, name in without,
                                 msg=f"{RequestCode(code).name} without {without}: {answer}")
            if name in DEEDS:
                deed, refusal = DEEDS[name]
                answer = deed(client)
                if name in without:
                    self.assertEqual(answer, refusal, msg=name)
                else:
                    self.assertIn(answer, (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND),
                                  msg=f"{name} without {without}")

    @staticmethod
    def with_rows(broker: RunningBroker) -> set[str]:
        """Return the plugins that have rows in the runtime table."""
        info = broker.call(lambda: broker.kernel.hooks.runtime_info())
        return {plugin for plugin, begin in ROWS.items()
                if any(name.startswith(begin) for name in info)}
