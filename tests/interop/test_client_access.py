"""Namespaces of the second kind, tokens and users: our client beside Apache's, at both brokers."""

from __future__ import annotations

import json
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.interop.acl_servers import BOB, Broker, both_brokers, signed
from tests.interop.clients import JavaTestCase
from tests.interop.java_process import JavaProcess
from tests.interop.kept import kept
from tests.interop.peer import Peer
from tests.interop.ports import free_port
from tests.interop.recorder import Exchange, Recorder
from tests.interop.servers import servers, wait_until
from twistmq.client import Client, Consumer, Credentials, Message, Producer, SendFailed
from twistmq.protocol.codes import RequestCode

NAMESPACE: Final = "shop"
TOKEN: Final = "token-of-bob"
#: Requests that each client sends in a round, by the server they go to.
NAMESRV_CODES: Final = (RequestCode.GET_ROUTEINFO_BY_TOPIC,)
BROKER_CODES: Final = (
    RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT, RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.PULL_MESSAGE,
    RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNREGISTER_CLIENT)
COUNT: Final = 4


class Recorded(NamedTuple):
    """A name server and a broker with a recorder before each."""

    where: str
    namesrv: Recorder
    broker: Recorder

    def requests(self) -> list[Exchange]:
        """Return all requests with the codes of a round."""
        return [each for recorder, codes in (
            (self.namesrv, NAMESRV_CODES), (self.broker, BROKER_CODES))
            for code in codes for each in recorder.exchanges(code)]


@contextmanager
def recorded(namesrv: str, broker_port: int) -> Iterator[Recorded]:
    """Relay to a name server and a broker during the block."""
    with ExitStack() as stack:
        ports = free_port(), free_port()
        broker = stack.enter_context(Recorder(ports[1], broker_port))
        names = stack.enter_context(Recorder(
            ports[0], int(namesrv.rpartition(":")[2]),
            (f"127.0.0.1:{broker_port}".encode(), f"127.0.0.1:{ports[1]}".encode())))
        yield Recorded(f"127.0.0.1:{ports[0]}", names, broker)


def plain_brokers(folder: Path, stack: ExitStack) -> dict[str, tuple[str, int]]:
    """Our broker and Apache's 5.3.3: the address of the name server and the broker's port."""
    ours = stack.enter_context(servers(folder / "ours", "brokerIP1=127.0.0.1"))
    peer = Peer(folder / "peer", "5.3.3", free_port(), free_port(), "512m")
    stack.callback(peer.stop, kill=True)
    peer.start()
    return {"ours": (ours.namesrv, ours.broker_port),
            "5.3.3": (peer.namesrv_address, peer.broker_port)}


def on_both(check: Callable[[Any], None], brokers: Mapping[str, Any]) -> None:
    """Check two brokers at the same time; the error of one tells its name."""
    with ThreadPoolExecutor(len(brokers)) as threads:
        waiting = {name: threads.submit(check, broker) for name, broker in brokers.items()}
    for name, future in waiting.items():
        error = future.exception()
        if error is not None:
            raise AssertionError(f"{name}: {error}") from error


def java_round(where: str, topic: str, group: str, properties: Sequence[str]) -> list[str]:
    """Send with Apache's client and receive all messages; :returns: these, sorted."""
    java = JavaProcess("5.3.3", "AccountMember", where, topic, group, str(COUNT),
                       properties=properties)
    try:
        java.wait_for("got", COUNT)
        java.leave()
        return sorted(line.partition(" ")[2] for line in java.told("got"))
    finally:
        java.close()


def our_round(where: str, topic: str, group: str, expected: int, **options: Any) -> list[str]:
    """Do the same with our client."""
    got: list[str] = []
    with Client(where, timeout_s=60, **options) as client:
        with Producer(client=client, group=group) as producer:
            for number in range(COUNT):
                producer.send(Message(topic, f"ours-{number}".encode()))
        with Consumer(client=client, group=group, topics=topic, start="first") as consumer:
            thread = threading.Thread(
                target=consumer.run, args=(lambda message: got.append(message.body.decode()),))
            thread.start()
            wait_until("all came", lambda: len(got) >= expected + COUNT)
            consumer.stop()
            thread.join()
    return sorted(got)


def bodies(*names: str) -> list[str]:
    """Return the bodies of these requests."""
    return sorted(f"{name}-{number}" for name in names for number in range(COUNT))


class NamespaceTests(JavaTestCase):
    """The namespace is in each request, and names are unchanged."""

    def test_requests_say_the_namespace_as_javas_do(self) -> None:
        """Both brokers keep plain names, so each client gets the other's messages, also without a
        namespace.
        """
        def check(broker: tuple[str, int]) -> None:
            with recorded(*broker) as java:
                self.assertEqual(java_round(java.where, "Second", "second-java", [
                    f"member.namespace={NAMESPACE}"]), bodies("java"))
            with recorded(*broker) as ours:
                self.assertEqual(our_round(
                    ours.where, "Second", "second-ours", COUNT, namespace=NAMESPACE,
                    namespace_v2=True), bodies("java", "ours"))
            self.assertEqual(our_round(broker[0], "Second", "second-none", 2 * COUNT),
                             bodies("java", "ours", "ours"))
            self.assertEqual(self.spaces(ours), self.spaces(java))
            self.assertEqual(self.names(ours), self.names(java))

        on_both(check, kept(self, plain_brokers))

    def spaces(self, of: Recorded) -> set[tuple[int, str | None, str | None]]:
        """Return each code with the namespace of its requests."""
        found = {(each.request.code, each.request.fields.get("nsd"), each.request.fields.get("ns"))
                 for each in of.requests()}
        self.assertEqual(found, {(code, "true", NAMESPACE)
                                 for code in (*NAMESRV_CODES, *BROKER_CODES)})
        return found

    def names(self, of: Recorded) -> set[str]:
        """The topics of the requests, and the groups of the heartbeats, less the client's word."""
        found = {each.request.fields["topic"] for each in of.requests()
                 if "topic" in each.request.fields}
        for each in of.broker.exchanges(RequestCode.HEART_BEAT):
            told = json.loads(each.request.body)
            found |= {member["groupName"] for kind in ("producerDataSet", "consumerDataSet")
                      for member in told.get(kind, [])}
        return {re.sub("-(java|ours)$", "", name) for name in found if "econd" in name}


class TokenTests(JavaTestCase):
    """Keys that were lent for a time go with a token, which is signed with the rest."""

    version = "4.9.4"

    def test_tokens_go_with_each_request_and_are_signed(self) -> None:
        """Apache's 4.9.4 and ours accept our requests as they accept Java's."""
        def check(broker: Broker) -> None:
            with recorded(broker.namesrv, broker.port) as java:
                self.assertEqual(java_round(java.where, "Token", "token-java", [
                    f"member.access_key={BOB[0]}", f"member.secret_key={BOB[1]}",
                    f"member.token={TOKEN}"]), bodies("java"))
            with recorded(broker.namesrv, broker.port) as ours:
                self.assertEqual(our_round(
                    ours.where, "Token", "token-ours", COUNT,
                    credentials=Credentials(*BOB, TOKEN)), bodies("java", "ours"))
            self.assertEqual(self.tokens(ours), self.tokens(java))
            # A token that was changed on its way is noticed.
            fields = signed(BOB, {"SecurityToken": TOKEN}, b"", 479)
            code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
            self.assertEqual(broker.ask(code, fields).code, 0)
            self.assertEqual(broker.ask(code, {**fields, "SecurityToken": "another"}).code, 1)

        apache, ours = kept(self, both_brokers)
        on_both(check, {"4.9.4": apache, "ours": ours})

    def tokens(self, of: Recorded) -> set[tuple[int, str | None, str | None]]:
        """Return each code with the key and the token of its requests."""
        found = {(each.request.code, each.request.fields.get("AccessKey"),
                  each.request.fields.get("SecurityToken")) for each in of.requests()}
        self.assertEqual(found, {(code, BOB[0], TOKEN)
                                 for code in (*NAMESRV_CODES, *BROKER_CODES)})
        return found


class UserTests(JavaTestCase):
    """Apache's 5.3.3 supports users with passwords, and policies."""

    def test_a_user_sends_and_consumes_and_a_wrong_password_does_not(self) -> None:
        """The user's name is the access key, the password the secret key."""
        peer = self.start_apache(settings={
            "authenticationEnabled": "true", "authorizationEnabled": "true",
            "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider."
                                      "DefaultAuthenticationProvider",
            "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider."
                                              "LocalAuthenticationMetadataProvider",
            "authorizationProvider": "org.apache.rocketmq.auth.authorization.provider."
                                     "DefaultAuthorizationProvider",
            "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider."
                                             "LocalAuthorizationMetadataProvider",
            "initAuthenticationUser": json.dumps({"username": "root", "password": "pass-of-root"}),
            "innerClientAuthenticationCredentials": json.dumps(
                {"accessKey": "root", "secretKey": "pass-of-root"})})
        where = peer.namesrv_address
        self.assertEqual(our_round(where, "User", "users", 0,
                                   credentials=Credentials("root", "pass-of-root")), bodies("ours"))
        for credentials in (Credentials("root", "pass-of-none"),
                            Credentials("other", "pass-of-root"), None):
            with Producer(where, credentials=credentials, timeout_s=60) as producer:
                error = self.assertRaises(SendFailed, producer.send, Message("User", b"refused"))
            self.assertNotIn("pass-of", "".join(traceback.format_exception(error)))
            self.assertFalse(error.maybe_stored)
