"""The requests of a broker to its name servers."""

from __future__ import annotations

import zlib
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.client.name_servers import BrokerIdentity, NameServers, Registered
from twistmq.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    KVTable,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, decode_command, encode_reply
from twistmq.protocol.errors import BrokerError, RemotingConnectError, RemotingTimeout
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerResponseHeader,
)

ME = BrokerIdentity("cluster", "broker-a", 0, "10.0.0.1:10911", "10.0.0.1:10912")


def reply(
    code: int = ResponseCode.SUCCESS, header: CommandHeader | None = None, body: bytes = b"",
    remark: str | None = None,
) -> RemotingCommand:
    """Return a response as it is decoded from the wire."""
    return decode_command(FrameDecoder().feed(encode_reply(code, 1, header, body, remark))[0])


class FakeClient:
    """Records requests and gives the prepared answers: a command, an error or a Deferred."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, Any, bytes]] = []
        #: The time-out of each, ms.
        self.timeouts: list[int] = []
        self.answers: dict[str, Any] = {}

    async def invoke(
        self, address: str, code: int, header: Any, body: bytes = b"", *, timeout_ms: int
    ) -> RemotingCommand:
        self.asked.append((address, code, header, body))
        self.timeouts.append(timeout_ms)
        answer = self.answers[address]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Deferred):
            answer = await answer
        if callable(answer):
            answer = answer(body)
        result: RemotingCommand = answer
        return result

    async def invoke_oneway(
        self, address: str, code: int, header: Any, body: bytes = b"", *,
        timeout_ms: int | None = None,
    ) -> None:
        await self.invoke(address, code, header, body, timeout_ms=timeout_ms or 0)


class NameServersTestCase(SynchronousTestCase):
    """A broker with two name servers."""

    def setUp(self) -> None:
        self.client = FakeClient()
        self.clock = Clock()
        self.servers = NameServers(
            self.client, ["a:1", "b:2"], self.clock)  # type: ignore[arg-type]
        self.wrapper = TopicConfigSerializeWrapper(
            {"T": TopicConfig("T", 4, 4)}, DataVersion(0, 5, 6))

    def codes(self) -> list[tuple[str, int]]:
        return [(address, code) for address, code, _, _ in self.client.asked]


class FindBrokerTests(NameServersTestCase):
    """The address of a broker."""

    def find(self, name: str = "x") -> Deferred[str | None]:
        return ensureDeferred(self.servers.find_broker(name, timeout_ms=1000))

    def cluster(self, *names: str) -> RemotingCommand:
        """Prepare a cluster of masters; y has only a slave."""
        return reply(body=ClusterInfo({name: BrokerData("c", name, {
            int(name == "y"): f"{name}:1"}) for name in names}).encode())

    def test_the_first_that_knows_it(self) -> None:
        """A name server that does not know the broker, or does not answer, is skipped."""
        self.client.answers = {"a:1": self.cluster("y", "z"), "b:2": self.cluster("x")}
        self.assertEqual(self.successResultOf(self.find()), "x:1")
        self.client.answers["a:1"] = RemotingTimeout("no reply")
        self.assertEqual(self.successResultOf(self.find()), "x:1")
        self.assertEqual({code for _, code in self.codes()}, {RequestCode.GET_BROKER_CLUSTER_INFO})

    def test_nobody_knows_it(self) -> None:
        """If no name server knows a master, the result is None, even if another one is silent."""
        self.client.answers = {"a:1": self.cluster("y"), "b:2": RemotingTimeout("no reply")}
        for name in ("x", "y"):
            self.assertIsNone(self.successResultOf(self.find(name)))

    def test_nobody_answers(self) -> None:
        """The result is unknown."""
        self.client.answers = {"a:1": RemotingConnectError("1"), "b:2": RemotingTimeout("2")}
        self.failureResultOf(self.find(), RemotingTimeout)
        self.servers.addresses = []
        self.failureResultOf(self.find(), BrokerError)


    def test_all_brokers_of_a_name(self) -> None:
        """Without a master the slaves are returned; an unknown name has no brokers."""
        self.client.answers = {"a:1": self.cluster("z"), "b:2": self.cluster("x", "y")}
        for name, members in (("x", {0: "x:1"}), ("y", {1: "y:1"}), ("w", {})):
            found = ensureDeferred(self.servers.find_members(name, timeout_ms=1000))
            self.assertEqual(self.successResultOf(found), members)
        self.client.answers = {"a:1": RemotingConnectError("1"), "b:2": RemotingTimeout("2")}
        self.failureResultOf(
            ensureDeferred(self.servers.find_members("x", timeout_ms=1000)), RemotingTimeout)


class FindRouteTests(NameServersTestCase):
    """The route of a topic."""

    def ask(self) -> TopicRouteData | None:
        return self.successResultOf(  # type: ignore[no-any-return]
            ensureDeferred(self.servers.find_route("T", timeout_ms=1000)))

    def test_the_next_one(self) -> None:
        """The first name server that answers decides."""
        route = TopicRouteData(queue_datas=[QueueData("b", 1, 1, 6)])
        self.client.answers = {"a:1": RemotingTimeout("slow"), "b:2": reply(body=route.encode())}
        self.assertEqual(self.ask(), route)
        self.assertEqual(self.codes(), [("a:1", RequestCode.GET_ROUTEINFO_BY_TOPIC),
                                        ("b:2", RequestCode.GET_ROUTEINFO_BY_TOPIC)])

    def test_no_such_topic(self) -> None:
        """The name server does not know the topic."""
        self.client.answers = {"a:1": reply(ResponseCode.TOPIC_NOT_EXIST)}
        self.assertIsNone(self.ask())

    def test_none_answers(self) -> None:
        """The call fails with the error of the last name server."""
        self.client.answers = {"a:1": RemotingTimeout("slow"), "b:2": reply(
            ResponseCode.SYSTEM_ERROR, remark="broken")}
        failure = self.failureResultOf(
            ensureDeferred(self.servers.find_route("T", timeout_ms=1000)))
        self.assertIn("broken", failure.getErrorMessage())


class RegisterTests(NameServersTestCase):
    """The registration."""

    def register(self, **arguments: Any) -> list[Registered]:
        body = RegisterBrokerBody(self.wrapper).encode(arguments.get("compressed", False))
        call = self.servers.register(ME, body, timeout_ms=100, **arguments)
        result: list[Registered] = self.successResultOf(ensureDeferred(call))
        return result

    def test_each_name_server_gets_the_registration(self) -> None:
        """Each name server gets the topics with a checksum of the body; each answers."""
        header = RegisterBrokerResponseHeader(ha_server_addr="h:1", master_addr="m:2")
        self.client.answers = {
            "a:1": reply(header=header, body=KVTable({"T": "broker-a:4"}).encode()),
            "b:2": reply(header=header)}
        self.assertEqual(self.register(), [Registered("m:2", "h:1", {"T": "broker-a:4"}),
                                           Registered("m:2", "h:1", {})])
        for _, code, sent, body in self.client.asked:
            self.assertEqual(code, RequestCode.REGISTER_BROKER)
            self.assertEqual((sent.cluster_name, sent.broker_name, sent.broker_id),
                             ("cluster", "broker-a", 0))
            self.assertEqual((sent.broker_addr, sent.ha_server_addr),
                             ("10.0.0.1:10911", "10.0.0.1:10912"))
            self.assertEqual(sent.body_crc32, zlib.crc32(body) & 0x7FFFFFFF)
            self.assertIs(sent.compressed, False)
            self.assertEqual((sent.enable_acting_master, sent.heartbeat_timeout_millis),
                             (False, None))
            decoded = RegisterBrokerBody.decode(body).topic_config_serialize_wrapper
            self.assertEqual(decoded, self.wrapper)

    def test_a_refused_part_is_left_out(self) -> None:
        """A name server that refuses it gets the topics alone, and one line is logged."""
        header = RegisterBrokerResponseHeader(master_addr="m:2")
        refusal = reply(ResponseCode.SYSTEM_ERROR, remark="a number is too large")
        refuses = True

        def of_b(body: bytes) -> RemotingCommand:
            return refusal if refuses and body != b"plain" else reply(header=header)

        with capturedLogs() as logs:
            for _ in range(2):
                self.client.asked.clear()
                self.client.answers = {"a:1": reply(header=header), "b:2": of_b}
                answers = self.register(plain=lambda: b"plain")
                self.assertEqual(len(answers), 2)
                sent = [(address, body == b"plain",
                         header.body_crc32 == zlib.crc32(body) & 0x7FFFFFFF)
                        for address, _, header, body in self.client.asked]
                self.assertEqual(sent, [("a:1", False, True), ("b:2", False, True),
                                        ("b:2", True, True)])
                self.assertEqual((self.servers.told_less, self.servers.unreached),
                                 ({"b:2": "a number is too large"}, {}))
            refuses = False
            self.register(plain=lambda: b"plain")
        self.assertEqual(self.servers.told_less, {})
        self.assertEqual([(event["log_level"].name, event.get("why")) for event in logs
                          if event["log_level"] is not LogLevel.debug],
                         [("error", "a number is too large"), ("info", None)])

    def test_a_refusal_of_the_topics_themselves(self) -> None:
        """The refusal is reported, and the same body is not sent again."""
        self.client.answers = dict.fromkeys(
            ("a:1", "b:2"), reply(ResponseCode.SYSTEM_ERROR, remark="no"))
        self.assertEqual(self.register(plain=lambda: b"plain"), [])
        self.assertEqual((len(self.client.asked), sorted(self.servers.unreached)),
                         (4, ["a:1", "b:2"]))
        self.assertEqual(self.servers.told_less, {})
        body = RegisterBrokerBody(self.wrapper).encode()
        self.register(plain=lambda: body)
        self.assertEqual(len(self.client.asked), 6)

    def test_a_slave_that_may_stand_in_for_its_master(self) -> None:
        """The registration has the flag, and the time after which the broker counts as lost."""
        self.client.answers = dict.fromkeys(
            ("a:1", "b:2"), reply(header=RegisterBrokerResponseHeader()))
        self.register(enable_acting_master=True, heartbeat_timeout_ms=10_000)
        for _, _, sent, _ in self.client.asked:
            self.assertEqual((sent.enable_acting_master, sent.heartbeat_timeout_millis),
                             (True, 10_000))

    def test_a_compressed_body_says_so_in_its_header_and_holds_the_same(self) -> None:
        """The header has the flag, and the decompressed body is the same."""
        self.client.answers = dict.fromkeys(
            ("a:1", "b:2"), reply(header=RegisterBrokerResponseHeader()))
        self.register(compressed=True)
        _, _, sent, body = self.client.asked[0]
        self.assertIs(sent.compressed, True)
        self.assertEqual(sent.body_crc32, zlib.crc32(body) & 0x7FFFFFFF)
        decoded = RegisterBrokerBody.decode(body, True).topic_config_serialize_wrapper
        self.assertEqual(decoded.topic_config_table["T"].write_queue_nums, 4)

    def test_one_that_fails(self) -> None:
        """A name server that fails or refuses does not affect the other one."""
        good = reply(header=RegisterBrokerResponseHeader(master_addr="m:2"))
        for bad in (RemotingConnectError("no"), RemotingTimeout("late"),
                    reply(ResponseCode.SYSTEM_ERROR, remark="crc32 not match")):
            self.client.answers = {"a:1": bad, "b:2": good}
            self.assertEqual([answer.master_address for answer in self.register()], ["m:2"])
            self.assertEqual(list(self.servers.unreached), ["a:1"])
        self.assertEqual(self.servers.unreached["a:1"], "a:1 answered 1: crc32 not match")
        self.client.answers["a:1"] = good
        self.register()
        self.assertEqual(self.servers.unreached, {})

    def test_a_broker_in_place_of_a_name_server(self) -> None:
        """The log names the mistake, and the broker registers with the other address."""
        good = reply(header=RegisterBrokerResponseHeader(master_addr="m:2"))
        self.client.answers = {"b:2": good, "a:1": reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=" request type 103 not supported")}
        self.assertEqual([answer.master_address for answer in self.register()], ["m:2"])
        self.assertEqual(self.servers.unreached["a:1"], (
            "a:1 answered 3: request type 103 not supported, so it is not a name server; it may be "
            "a broker"))

    def test_one_that_is_slow(self) -> None:
        """All name servers are asked at the same time, so a slow one delays no other."""
        slow: Deferred[RemotingCommand] = Deferred()
        self.client.answers = {"a:1": slow,
                               "b:2": reply(header=RegisterBrokerResponseHeader())}
        body = RegisterBrokerBody(self.wrapper).encode()
        done = ensureDeferred(self.servers.register(ME, body, timeout_ms=100))
        self.assertEqual(len(self.client.asked), 2)
        self.assertNoResult(done)
        slow.callback(reply(header=RegisterBrokerResponseHeader()))
        self.assertEqual(len(self.successResultOf(done)), 2)

    def test_a_cancelled_registration_fails_with_just_that(self) -> None:
        """The caller gets CancelledError."""
        self.client.answers = {name: Deferred() for name in ("a:1", "b:2")}
        body = RegisterBrokerBody(self.wrapper).encode()
        done = Deferred.fromCoroutine(self.servers.register(ME, body, timeout_ms=100))
        done.cancel()
        self.failureResultOf(done, CancelledError)

    def test_a_one_way_registration_has_no_answers(self) -> None:
        """A one-way registration has no answers."""
        told: list[tuple[str, int]] = []

        async def invoke_oneway(address: str, code: int, header: Any, body: bytes) -> None:
            told.append((address, code))

        # A question would fail: there are no answers.
        self.patch(self.client, "invoke_oneway", invoke_oneway)
        self.assertEqual(self.register(oneway=True), [])
        self.assertEqual(told, [(address, RequestCode.REGISTER_BROKER)
                                for address in ("a:1", "b:2")])
        self.assertEqual((self.client.asked, self.servers.unreached), ([], {}))

    def test_without_name_servers_nothing_is_sent(self) -> None:
        """Without name servers nothing is sent."""
        self.servers.addresses = []
        self.assertEqual(self.register(), [])


class NeedRegisterTests(NameServersTestCase):
    """The version of the topics at a name server."""

    def need(self, first: Any, second: Any) -> bool:
        self.client.answers = {"a:1": first, "b:2": second}
        call = self.servers.need_register(ME, self.wrapper.data_version, timeout_ms=100)
        result: bool = self.successResultOf(ensureDeferred(call))
        return result

    def answer(self, changed: bool | None, version: DataVersion | None = None) -> RemotingCommand:
        return reply(header=QueryDataVersionResponseHeader(changed=changed),
                     body=version.encode() if version else b"")

    def test_only_when_all_of_them_know_our_version_is_there_nothing_to_say(self) -> None:
        """No registration is needed only if all name servers have our version."""
        same = self.answer(False, DataVersion(0, 5, 6))
        self.assertIs(self.need(same, same), False)
        for _, code, asked, body in self.client.asked:
            self.assertEqual(code, RequestCode.QUERY_DATA_VERSION)
            self.assertEqual((asked.cluster_name, asked.broker_name, asked.broker_id,
                              asked.broker_addr), ("cluster", "broker-a", 0, "10.0.0.1:10911"))
            self.assertEqual(DataVersion.decode(body), self.wrapper.data_version)
        for name, other in (
            ("changed", self.answer(True, DataVersion(0, 5, 6))),
            ("says nothing", self.answer(None)),
            ("knows none", self.answer(False)),
            ("an older one", self.answer(False, DataVersion(0, 5, 5))),
            ("refuses", reply(ResponseCode.SYSTEM_ERROR)),
            ("is not there", RemotingConnectError("no")),
        ):
            self.assertIs(self.need(same, other), True, msg=name)


class SilentTests(NameServersTestCase):
    """A name server that accepts requests and answers none, such as a stopped process."""

    def setUp(self) -> None:
        super().setUp()
        self.silence: Deferred[RemotingCommand] = Deferred()
        self.client.answers = {"a:1": self.silence, "b:2": self.named("m:2")}
        self.late: list[list[str | None]] = []
        self.servers.on_late = lambda answers: self.late.append(
            [each.master_address for each in answers])

    def named(self, master: str) -> RemotingCommand:
        return reply(header=RegisterBrokerResponseHeader(master_addr=master))

    def register(self, body: bytes = b"body") -> Deferred[list[Registered]]:
        return ensureDeferred(self.servers.register(ME, body, timeout_ms=24_000))

    def masters(self, registering: Deferred[list[Registered]]) -> list[str | None]:
        return [each.master_address for each in self.successResultOf(registering)]

    def bodies(self, address: str) -> list[bytes]:
        return [body for asked, _, _, body in self.client.asked if asked == address]

    def test_a_registration_waits_for_two_seconds_once(self) -> None:
        """Later registrations do not wait for it, and the others get them immediately."""
        registering = self.register()
        self.clock.advance(1.9)
        self.assertNoResult(registering)
        self.clock.advance(0.2)
        self.assertEqual(self.masters(registering), ["m:2"])
        self.assertEqual(list(self.servers.unreached), ["a:1"])
        self.assertEqual(self.masters(self.register()), ["m:2"])
        self.assertEqual((len(self.bodies("b:2")), self.clock.getDelayedCalls()), (2, []))

    def test_it_gets_the_newest_registration_when_it_answers(self) -> None:
        """One registration is sent at a time; older ones are dropped, and its answers are used."""
        self.register(b"0")
        self.clock.advance(2)
        for number in range(1, 4):
            self.masters(self.register(b"%d" % number))
        self.assertEqual(self.bodies("a:1"), [b"0"])
        self.client.answers["a:1"] = self.named("m:1")
        self.silence.callback(self.named("m:0"))
        self.assertEqual(self.bodies("a:1"), [b"0", b"3"])
        self.assertEqual(self.late[0], ["m:0", "m:2"])
        self.assertEqual(self.servers.unreached, {})
        self.assertEqual(self.masters(self.register()), ["m:1", "m:2"])

    def test_the_only_one(self) -> None:
        """Nothing is registered, and no request waits for it any more."""
        self.servers.addresses = ["a:1"]
        registering = self.register()
        self.clock.advance(2)
        self.assertEqual(self.masters(registering), [])
        self.assertEqual(self.masters(self.register()), [])

    def test_a_time_out_is_a_silence_too(self) -> None:
        """The time-out may be shorter than two seconds; a refused connection does not count."""
        for error, is_waited_for in ((RemotingConnectError("no"), True),
                                     (RemotingTimeout("late"), False)):
            self.client.answers["a:1"] = error
            self.masters(self.register())
            self.client.answers["a:1"] = Deferred()
            registering = self.register()
            self.assertEqual(registering.called, not is_waited_for)
            self.clock.advance(2)
            self.client.answers["a:1"].errback(error)

    def test_it_is_asked_last(self) -> None:
        """The other name servers are asked first, within the time-out."""
        self.servers.addresses = ["a:1", "b:2", "c:3"]
        route = TopicRouteData(queue_datas=[QueueData("b", 1, 1, 6)])
        self.client.answers = {"a:1": RemotingTimeout("late"), "b:2": RemotingConnectError("no"),
                               "c:3": reply(body=route.encode())}
        for order, timeouts in ((["a:1", "b:2", "c:3"], [1000, 1500, 3000]),
                                (["b:2", "c:3"], [1000, 1500])):
            self.client.asked.clear()
            self.client.timeouts.clear()
            found = ensureDeferred(self.servers.find_route("T", timeout_ms=3000))
            self.assertEqual(self.successResultOf(found), route)
            self.assertEqual([address for address, _ in self.codes()], order)
            self.assertEqual(self.client.timeouts, timeouts)

    def test_other_questions(self) -> None:
        """Requests of all kinds share the time-out, and remember the same silent server."""
        self.client.answers = {"a:1": RemotingTimeout("late"), "b:2": reply(
            body=ClusterInfo({"x": BrokerData("c", "x", {0: "x:1"})}).encode())}
        found = ensureDeferred(self.servers.find_broker("x", timeout_ms=3000))
        self.assertEqual(self.successResultOf(found), "x:1")
        header = GetBrokerMemberGroupRequestHeader(cluster_name="c", broker_name="n")
        self.successResultOf(ensureDeferred(self.servers.ask(
            RequestCode.GET_BROKER_MEMBER_GROUP, header, timeout_ms=3000)))
        self.assertEqual([address for address, _ in self.codes()], ["a:1", "b:2", "b:2"])
        self.assertEqual(self.client.timeouts, [1500, 3000, 1500])

    def test_the_question_for_the_version(self) -> None:
        """The request has a short time-out, and is not sent to a silent name server."""
        self.client.answers["a:1"] = RemotingTimeout("late")
        self.client.answers["b:2"] = reply(header=QueryDataVersionResponseHeader(changed=False))
        for asked in (2, 3):
            need = ensureDeferred(self.servers.need_register(
                ME, self.wrapper.data_version, timeout_ms=24_000))
            self.assertTrue(self.successResultOf(need))
            self.assertEqual(len(self.client.asked), asked)
        self.assertEqual(set(self.client.timeouts), {2000})

    def test_a_broker_that_stops(self) -> None:
        """It waits for a silent name server for a shorter time, and sends nothing later."""
        self.register()
        self.clock.advance(2)
        self.client.answers = dict.fromkeys(("a:1", "b:2"), reply())
        self.client.timeouts.clear()
        with capturedLogs() as logs:
            self.successResultOf(ensureDeferred(self.servers.unregister(ME, timeout_ms=3000)))
            self.silence.errback(RemotingTimeout("closed"))
        self.assertEqual(self.client.timeouts, [500, 3000])
        self.assertEqual((logs, self.late), ([], []))


class OtherTests(NameServersTestCase):
    """Unregistration, and requests of plugins."""

    def test_unregistering_reaches_all_and_ignores_absent_ones(self) -> None:
        """All name servers get the request; one that is not reachable causes no error."""
        self.client.answers = {"a:1": RemotingConnectError("no"), "b:2": reply()}
        self.successResultOf(ensureDeferred(self.servers.unregister(ME, timeout_ms=100)))
        self.assertEqual(self.codes(), [("a:1", RequestCode.UNREGISTER_BROKER),
                                        ("b:2", RequestCode.UNREGISTER_BROKER)])

    def test_all_are_told(self) -> None:
        """The request is one-way; a name server that is not reachable causes no error."""
        self.client.answers = {"a:1": RemotingConnectError("no"), "b:2": reply()}
        header = BrokerHeartbeatRequestHeader(cluster_name="c", broker_addr="x", broker_name="n")
        self.successResultOf(ensureDeferred(self.servers.notify(
            RequestCode.BROKER_HEARTBEAT, header, b"body", timeout_ms=100)))
        self.assertEqual(self.client.asked, [
            (address, RequestCode.BROKER_HEARTBEAT, header, b"body")
            for address in ("a:1", "b:2")])

    def test_the_first_that_answers_is_asked(self) -> None:
        """The first answer counts, whatever it is; if all fail, the last error is raised."""
        header = GetBrokerMemberGroupRequestHeader(cluster_name="c", broker_name="n")

        def ask() -> Deferred[RemotingCommand]:
            return ensureDeferred(self.servers.ask(
                RequestCode.GET_BROKER_MEMBER_GROUP, header, timeout_ms=100))

        refusal = reply(ResponseCode.SYSTEM_ERROR)
        self.client.answers = {"a:1": RemotingConnectError("late"), "b:2": refusal}
        self.assertIs(self.successResultOf(ask()), refusal)
        self.client.answers["b:2"] = RemotingConnectError("no")
        error = self.failureResultOf(ask(), RemotingConnectError)
        self.assertEqual(str(error.value), "no")
        self.servers.addresses = []
        self.failureResultOf(ask(), BrokerError)
