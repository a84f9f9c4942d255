"""Clients register and leave: requests 34, 35, 38, 46, and 40 to groups that change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twistmq.broker import hookimpl
from twistmq.broker.constants import TOPIC_ROWS_KEPT, TOPIC_ROWS_SIZE_MAX
from twistmq.broker.plugin.interfaces import IFilterLanguage
from twistmq.broker.request.client_table import ClientChange
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.client import (
    GetConsumerListByGroupRequestHeader,
    HeartbeatResponseHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)


def consumer(
    group: str, *topics: str, model: MessageModel = MessageModel.CLUSTERING, unit: bool = False
) -> ConsumerData:
    """Return a group of a heartbeat."""
    return ConsumerData(group, message_model=model, unit_mode=unit, subscription_data_set=tuple(
        SubscriptionData(topic, sub_version=1) for topic in topics))


class ClientCase(SynchronousTestCase):
    """A broker and three connections."""

    def setUp(self) -> None:
        self.box = self.make()
        self.peers = [self.box.peer() for _ in range(3)]

    def make(self, **arguments: Any) -> KernelBox:
        box = KernelBox(**arguments)
        self.addCleanup(box.stop)
        return box

    def beat(
        self, number: int, *consumers: ConsumerData, producers: tuple[str, ...] = (),
        fingerprint: int = 0, without_sub: bool = False,
    ) -> HeartbeatResponseHeader:
        """Send the heartbeat of client ``number``, from 0."""
        body = HeartbeatData(
            f"c{number}", tuple(ProducerData(group) for group in producers), consumers,
            fingerprint, without_sub)
        reply = self.box.ask(RequestCode.HEART_BEAT, body=body.encode_standard(),
                             peer=self.peers[number])
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return reply.header(HeartbeatResponseHeader)

    def pushed(self, number: int) -> list[str]:
        """Return the groups whose change client ``number`` was told since the last call."""
        peer = self.peers[number]
        groups = []
        for request in peer.requests:
            self.assertEqual(request.code, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
            assert isinstance(request.header, NotifyConsumerIdsChangedRequestHeader)
            groups.append(request.header.consumer_group)
        peer.requests.clear()
        return groups

    def members(self, group: str) -> RemotingCommand:
        return self.box.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                            GetConsumerListByGroupRequestHeader(consumer_group=group))


class HeartbeatTests(ClientCase):
    """The request 34."""

    def test_the_second_kind_of_heartbeat_is_supported(self) -> None:
        """The second kind of heartbeat is supported; one of the first changes subscriptions."""
        reply = self.beat(0, consumer("G", "T"))
        self.assertEqual(reply, HeartbeatResponseHeader(
            support_heart_beat_v2=True, sub_change=True))

    def test_group_and_retry_topic(self) -> None:
        """Both are created with Apache's settings, and marked as unit."""
        self.beat(0, consumer("G", "T"), consumer("U", "T", unit=True))
        kernel = self.box.kernel
        self.assertEqual(kernel.subscription_group.table["G"], SubscriptionGroupConfig("G"))
        self.assertEqual(kernel.topic_config.table["%RETRY%G"], TopicConfig("%RETRY%G", 1, 1, 6))
        self.assertEqual(kernel.topic_config.table["%RETRY%U"],
                         TopicConfig("%RETRY%U", 1, 1, 6, topic_sys_flag=2))

    def test_retry_topic_as_the_group_says(self) -> None:
        """The group determines its queues, and a subscribed topic determines its order."""
        kernel = self.box.kernel
        kernel.subscription_group.update(SubscriptionGroupConfig("G", retry_queue_nums=3), {})
        kernel.topic_config.update(TopicConfig("Ordered", order=True), {})
        self.beat(0, consumer("G", "Ordered"))
        self.assertEqual(kernel.topic_config.table["%RETRY%G"],
                         TopicConfig("%RETRY%G", 3, 3, 6, order=True))

    def test_name_servers_hear_of_new_topics(self) -> None:
        """They are informed once by a heartbeat that created some, and not by the next one."""
        told: list[int] = []
        self.box.host.on_topic_change.append(lambda: told.append(1))
        self.beat(0, consumer("G", "T"), consumer("H", "T"))
        self.beat(0, consumer("G", "T"), consumer("H", "T"))
        self.assertEqual(told, [1])

    def test_producers_are_registered_by_group_with_their_language(self) -> None:
        """They are registered by group, with the language of the command."""
        self.beat(0, producers=("P", "Q"))
        clients = self.box.kernel.clients.producers
        self.assertEqual(sorted(clients), ["P", "Q"])
        client, = clients["P"].values()
        self.assertEqual((client.client_id, client.channel, client.language),
                         ("c0", self.peers[0], "PYTHON"))

    def test_group_that_cannot_be(self) -> None:
        """An invalid group is left out; the other groups of the heartbeat are registered."""
        self.beat(0, consumer("bad*group", "T"), consumer("G", "T"), producers=("P",))
        self.assertEqual(list(self.box.kernel.clients.consumers), ["G"])
        self.assertNotIn("%RETRY%bad*group", self.box.kernel.topic_config.table)
        self.assertIn("P", self.box.kernel.clients.producers)

    def test_name_too_long_for_retries(self) -> None:
        """Its retry topic could have no directory, so no start could read the topics."""
        disk = FaultyDisk()
        self.box = self.make(disk=disk)
        self.peers = [self.box.peer()]
        for size in (248, 249, 255):
            body = HeartbeatData("c", consumer_data_set=(consumer("g" * size, "T"),))
            self.box.send(self.peers[0], RequestCode.HEART_BEAT, body=body.encode())
        self.box.stop()
        self.box = self.make(disk=disk)
        topics = [topic for topic in self.box.kernel.topic_config.table if "%RETRY%" in topic]
        self.assertEqual(topics, ["%RETRY%" + "g" * 248])

    def test_full_of_ordinary_topics(self) -> None:
        """New groups are registered, and existing ones still get their topics."""
        table = self.box.kernel.topic_config
        table.rows_size = TOPIC_ROWS_SIZE_MAX - TOPIC_ROWS_KEPT
        self.beat(0, consumer("G", "T"))
        self.assertEqual(list(self.box.kernel.clients.consumers), ["G"])
        self.assertIn("%RETRY%G", table.table)
        self.box.kernel.subscription_group.find("H")
        table.rows_size = TOPIC_ROWS_SIZE_MAX - TOPIC_ROWS_KEPT // 2
        self.beat(0, consumer("G", "T"), consumer("H", "T"), consumer("new", "T"))
        self.assertEqual(list(self.box.kernel.clients.consumers), ["G", "H"])
        self.assertIn("%RETRY%H", table.table)
        self.assertNotIn("new", self.box.kernel.subscription_group.table)

    def test_groups_that_must_not_be_created(self) -> None:
        """Without autoCreateSubscriptionGroup an unknown group has no members."""
        self.box = self.make(settings={"autoCreateSubscriptionGroup": "false"})
        self.beat(0, consumer("G", "T"))
        self.assertEqual(self.members("G").code, ResponseCode.SYSTEM_ERROR)
        self.assertNotIn("%RETRY%G", self.box.kernel.topic_config.table)

    def test_other_peoples_bodies(self) -> None:
        """The bodies of Java, Go and C++ clients have null for a set, and fields in any order."""
        bodies = (
            b'{"clientID":"j","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
            b'"consumeType":"CONSUME_PASSIVELY","groupName":"J","messageModel":"CLUSTERING",'
            b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[97],"expressionType":'
            b'"TAG","subString":"a","subVersion":1700000000000,"tagsSet":["a"],"topic":"T"}],'
            b'"unitMode":false}],"heartbeatFingerprint":0,'
            b'"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}',
            b'{"clientID":"g","producerDataSet":null,"consumerDataSet":[{"groupName":"J",'
            b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
            b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":'
            b'[{"classFilterMode":false,"topic":"T","subString":"*","tagsSet":null,"codeSet":null,'
            b'"subVersion":1,"expressionType":"TAG"}],"unitMode":false}]}',
            b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,'
            b'"groupName":"J","messageModel":1,"subscriptionDataSet":[{"codeSet":[],'
            b'"subString":"*","subVersion":1,"tagsSet":[],"topic":"T"}]}],"producerDataSet":[]}',
        )
        for number, body in enumerate(bodies):
            reply = self.box.ask(RequestCode.HEART_BEAT, body=body, peer=self.peers[number])
            self.assertEqual(reply.code, ResponseCode.SUCCESS, f"{number}: {reply.remark}")
        body_of = GetConsumerListByGroupResponseBody.decode(self.members("J").body)
        self.assertEqual(body_of.consumer_id_list, ["j", "g", "c"])

    def test_broken_bodies(self) -> None:
        """Each body is refused with a reason and does not register a client."""
        for body in (b"", b"{", b"[]", b"null", b"{}", b'{"clientID":5}',
                     b'{"clientID":"c","consumerDataSet":[{}]}'):
            reply = self.box.ask(RequestCode.HEART_BEAT, body=body, peer=self.peers[0])
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR, body)
            self.assertIn("HeartbeatData", reply.remark or "", body)
        self.assertEqual(self.box.kernel.clients.consumers, {})


class LargeHeartbeatTests(ClientCase):
    """A heartbeat with so many groups that others have their turns meanwhile."""

    COUNT = 100

    def setUp(self) -> None:
        super().setUp()
        times = count(self.box.now_ms)
        # Each look at the clock is a millisecond later.
        self.box.clock = times.__next__
        self.peer = self.box.peer()
        body = HeartbeatData("c", consumer_data_set=tuple(
            consumer(f"G{number}", "T") for number in range(self.COUNT)))
        self.reply = self.box.send(self.peer, RequestCode.HEART_BEAT, None,
                                   body.encode_standard())

    def groups(self) -> int:
        return len(self.box.kernel.clients.consumers)

    def test_in_turns(self) -> None:
        """The response follows when all its groups are registered."""
        self.assertIsNone(self.reply)
        before = self.groups()
        self.assertLess(before, self.COUNT // 2)
        self.box.kernel.background.step(0)
        self.assertLess(before, self.groups())
        self.assertEqual(self.box.late_replies(self.peer), [])
        self.box.kernel.slices.finish()
        self.assertEqual(self.groups(), self.COUNT)
        self.assertEqual([reply.code for reply in self.box.late_replies(self.peer)], [0])

    def test_the_next_one(self) -> None:
        """Another heartbeat of the same connection is refused until then."""
        body = HeartbeatData("c", consumer_data_set=(consumer("H", "T"),)).encode_standard()

        def ask(peer: Peer) -> int:
            return self.box.ask(RequestCode.HEART_BEAT, None, body, peer).code

        self.assertEqual(ask(self.peer), ResponseCode.SYSTEM_BUSY)
        now_ms = self.box.clock()
        self.box.clock = lambda: now_ms
        self.assertEqual(ask(self.peers[0]), 0)
        self.box.kernel.slices.finish()
        self.assertEqual(ask(self.peer), 0)

    def test_a_lost_connection_leaves_nothing_of_its_heartbeat(self) -> None:
        """If the connection is lost in the meantime, nothing of the heartbeat remains."""
        self.peer.active = False
        self.box.kernel.channels.remove(self.peer)
        self.assertEqual(self.groups(), 0)
        self.box.kernel.slices.finish()
        self.assertEqual(self.groups(), 0)


class SecondKindTests(ClientCase):
    """Heartbeats with a fingerprint in place of the subscriptions."""

    def test_subscriptions_once(self) -> None:
        """They are sent once, and again when the fingerprint changes."""
        self.assertFalse(self.beat(0, consumer("G", "T"), fingerprint=7).sub_change)
        self.assertFalse(self.beat(0, consumer("G"), fingerprint=7, without_sub=True).sub_change)
        self.assertTrue(self.beat(0, consumer("G"), fingerprint=8, without_sub=True).sub_change)
        self.assertFalse(self.beat(0, consumer("G", "U"), fingerprint=8).sub_change)
        group = self.box.kernel.clients.consumer_group("G")
        assert group is not None
        self.assertEqual(list(group.subscriptions), ["U"])

    def test_members_of_both_kinds(self) -> None:
        """A heartbeat of the other kind makes the client send its subscriptions."""
        self.beat(0, consumer("G", "T"), fingerprint=7)
        self.beat(1, consumer("G", "T"))
        self.assertTrue(self.beat(0, consumer("G"), fingerprint=7, without_sub=True).sub_change)

    def test_broker_that_never_saw_them(self) -> None:
        """A broker that was restarted asks for the subscriptions."""
        reply = self.beat(0, consumer("G"), fingerprint=7, without_sub=True)
        self.assertTrue(reply.sub_change)
        self.assertFalse(self.beat(0, consumer("G", "T"), fingerprint=7).sub_change)

    def test_group_that_was_empty(self) -> None:
        """A client that was lost and returns is asked for them as well."""
        self.beat(0, consumer("G", "T"), fingerprint=7)
        self.box.kernel.channels.remove(self.peers[0])
        reply = self.beat(1, consumer("G"), fingerprint=7, without_sub=True)
        self.assertTrue(reply.sub_change)


class PushTests(ClientCase):
    """The request 40: the members of a group must share its queues again."""

    def test_who_comes_and_goes(self) -> None:
        """All members are notified each time, including the new one."""
        self.beat(0, consumer("G", "T"))
        self.assertEqual(self.pushed(0), ["G"])
        self.beat(1, consumer("G", "T"))
        self.assertEqual((self.pushed(0), self.pushed(1)), (["G"], ["G"]))
        self.box.kernel.channels.remove(self.peers[1])
        self.assertEqual((self.pushed(0), self.pushed(1)), (["G"], []))

    def test_nothing_new(self) -> None:
        """A heartbeat like the last one causes no notification."""
        self.beat(0, consumer("G", "T"))
        self.pushed(0)
        self.beat(0, consumer("G", "T"))
        self.assertEqual(self.pushed(0), [])

    def test_topic_more(self) -> None:
        """A group that subscribes to another topic is notified."""
        self.beat(0, consumer("G", "T"))
        self.pushed(0)
        self.beat(0, consumer("G", "T", "U"))
        self.assertEqual(self.pushed(0), ["G"])

    def test_quiet_groups(self) -> None:
        """Broadcast groups, and groups with a setting, are not notified."""
        self.box.kernel.subscription_group.update(SubscriptionGroupConfig(
            "Q", notify_consumer_ids_changed_enable=False), {})
        for group, model in (("B", MessageModel.BROADCASTING), ("Q", MessageModel.CLUSTERING)):
            for number in (0, 1):
                self.beat(number, consumer(group, "T", model=model))
            self.box.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader(
                client_id="c1", consumer_group=group), peer=self.peers[1])
            self.assertEqual(self.pushed(0), [], group)

    def test_lost_member_of_a_quiet_group(self) -> None:
        """If a member is lost, the group is notified in spite of it, as with Apache's broker."""
        self.box.kernel.subscription_group.update(SubscriptionGroupConfig(
            "Q", notify_consumer_ids_changed_enable=False), {})
        for number in (0, 1):
            self.beat(number, consumer("Q", "T"))
        self.box.kernel.channels.remove(self.peers[1])
        self.assertEqual(self.pushed(0), ["Q"])

    def test_silent_client(self) -> None:
        """After two minutes without a heartbeat the others take over its queues."""
        self.beat(0, consumer("G", "T"))
        self.beat(1, consumer("G", "T"))
        self.box.now_ms += 60_000
        self.beat(0, consumer("G", "T"))
        self.pushed(0)
        task, = (task for task in self.box.kernel.periodic_tasks
                 if task.name == "expire silent clients")
        self.assertEqual(task.period_ms, 10_000)
        self.box.now_ms += 60_001
        task.run(self.box.now_ms)
        self.assertEqual(self.pushed(0), ["G"])
        self.assertFalse(self.peers[1].active)
        self.assertEqual(self.box.kernel.clients.consumers["G"].client_ids, ["c0"])

    def test_plugins_are_told(self) -> None:
        """``on_client_change`` gets the same changes as the members, and more."""
        class Listener:
            def __init__(self) -> None:
                self.heard: list[tuple[str, str]] = []

            @hookimpl
            def on_client_change(self, change: ClientChange) -> None:
                self.heard.append((change.kind.name, change.group))

        listener = Listener()
        self.box = self.make(plugins=[("listener", listener)])
        self.beat(0, consumer("G", "T"))
        self.box.kernel.clients.connection_lost(self.peers[0])
        self.assertEqual(listener.heard, [("CHANGE", "G"), ("REGISTER", "G"),
                                          ("CLIENT_GONE", "G"), ("UNREGISTER", "G")])


class UnregisterTests(ClientCase):
    """The request 35."""

    def leave(self, number: int, **groups: str) -> RemotingCommand:
        return self.box.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader(
            client_id=f"c{number}", **groups), peer=self.peers[number])

    def test_both_kinds(self) -> None:
        """A client leaves the groups it names, and no other."""
        self.beat(0, consumer("G", "T"), consumer("H", "T"), producers=("P", "Q"))
        reply = self.leave(0, producer_group="P", consumer_group="G")
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        clients = self.box.kernel.clients
        self.assertEqual((list(clients.consumers), list(clients.producers)), (["H"], ["Q"]))

    def test_others_are_told(self) -> None:
        """The remaining members are notified, and the one that left is not."""
        for number in (0, 1):
            self.beat(number, consumer("G", "T"))
        self.pushed(0), self.pushed(1)
        self.leave(1, consumer_group="G")
        self.assertEqual((self.pushed(0), self.pushed(1)), (["G"], []))

    def test_unknown_groups(self) -> None:
        """Leaving an unknown group succeeds and creates nothing."""
        reply = self.leave(0, producer_group="X", consumer_group="Y")
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertNotIn("Y", self.box.kernel.subscription_group.table)

    def test_by_connection(self) -> None:
        """The name of a client is not enough; the connection must be its own."""
        self.beat(0, consumer("G", "T"))
        self.box.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader(
            client_id="c0", consumer_group="G"), peer=self.peers[1])
        self.assertIn("G", self.box.kernel.clients.consumers)


class MembersTests(ClientCase):
    """The request 38."""

    def test_member_ids_come_in_order_of_arrival(self) -> None:
        """The ids have the order of their registrations."""
        for number in (1, 0, 2):
            self.beat(number, consumer("G", "T"))
        reply = self.members("G")
        self.assertEqual(json.loads(reply.body), {"consumerIdList": ["c1", "c0", "c2"]})

    def test_a_group_without_members_answers_as_apaches_broker_does(self) -> None:
        """A group without members answers as Apache's broker does."""
        reply = self.members("G")
        self.assertEqual((reply.code, reply.remark),
                         (ResponseCode.SYSTEM_ERROR, "no consumer for this group, G"))


@implementer(IFilterLanguage)
class Truth:
    """A filter language with one word."""

    def compile(self, expression: str) -> Callable[[Mapping[str, str]], bool]:
        if expression != "TRUE":
            raise ValueError("only TRUE is true")
        return lambda properties: True


class TruthPlugin:
    """A plugin with the language TRUTH."""

    @hookimpl
    def register_filter_languages(self) -> Mapping[str, IFilterLanguage]:
        return {"TRUTH": Truth()}


class CheckTests(ClientCase):
    """The request 46."""

    def check(self, subscription: SubscriptionData | None) -> tuple[int, str | None]:
        body = CheckClientRequestBody("c", "G", subscription)
        reply = self.box.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode_standard())
        return reply.code, reply.remark

    def test_tag_is_always_taken(self) -> None:
        """TAG is always accepted, and so is a missing expression."""
        good = (ResponseCode.SUCCESS, None)
        self.assertEqual(self.check(SubscriptionData("T", "a || b")), good)
        self.assertEqual(self.check(SubscriptionData("T", "a", expression_type="")), good)
        self.assertEqual(self.check(None), good)
        self.assertEqual(self.box.ask(RequestCode.CHECK_CLIENT_CONFIG).code, ResponseCode.SUCCESS)

    def test_other_languages_switched_off(self) -> None:
        """Without enablePropertyFilter all are refused; the remark is Apache's."""
        self.box = self.make(plugins=[("truth", TruthPlugin())])
        for name in ("SQL92", "TRUTH"):
            self.assertEqual(
                self.check(SubscriptionData("T", "TRUE", expression_type=name)),
                (ResponseCode.SYSTEM_ERROR,
                 f"The broker does not support consumer to filter message by {name}"))

    def test_language_of_a_plugin(self) -> None:
        """A right expression is accepted; a wrong one and an unknown language are not."""
        self.box = self.make(plugins=[("truth", TruthPlugin())],
                             settings={"enablePropertyFilter": "true"})
        codes = [self.check(SubscriptionData("T", expression, expression_type=name))[0]
                 for name, expression in (("TRUTH", "TRUE"), ("TRUTH", "x"), ("SQL92", "TRUE"))]
        self.assertEqual(codes, [ResponseCode.SUCCESS, ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                                 ResponseCode.SUBSCRIPTION_PARSE_FAILED])
        self.assertEqual(
            [self.check(SubscriptionData("T", expression, expression_type=name))[1]
             for name, expression in (("TRUTH", "x"), ("SQL92", "TRUE"))],
            ["only TRUE is true", "no filter language SQL92"])

    def test_broken_body(self) -> None:
        """The request is refused with a reason."""
        reply = self.box.ask(RequestCode.CHECK_CLIENT_CONFIG, body=b"{")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("CheckClientRequestBody", reply.remark or "")


class ManyClientsTests(SynchronousTestCase):
    """A group of a thousand members."""

    def test_one_join(self) -> None:
        """All are notified once, and listed."""
        box = KernelBox()
        self.addCleanup(box.stop)
        peers: list[Peer] = [box.peer() for _ in range(1000)]
        for number, peer in enumerate(peers):
            body = HeartbeatData(f"c{number}", consumer_data_set=(consumer("G", "T"),))
            box.ask(RequestCode.HEART_BEAT, body=body.encode_standard(), peer=peer)
        self.assertEqual([len(peer.requests) for peer in peers], list(range(1000, 0, -1)))
        reply = box.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                        GetConsumerListByGroupRequestHeader(consumer_group="G"))
        self.assertEqual(len(json.loads(reply.body)["consumerIdList"]), 1000)
