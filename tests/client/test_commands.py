"""The commands ``twistmq produce``, ``consume`` and ``bench``."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from contextlib import closing
from typing import Any

from click.testing import CliRunner, Result
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.client.scripted_server import ScriptedServer, answer, route_body
from tests.interop.servers import wait_until
from twistmq.broker.testing import running_broker
from twistmq.client import Client, Consumer, Message, MessageQueue, Producer, ReceivedMessage
from twistmq.client.base.errors import RequestRefused
from twistmq.client.commands import consume as consume_module
from twistmq.client.commands.lines import read_messages, unescaped
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingConnectError
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.tools.command_line import twistmq


class EscapeTests(SynchronousTestCase):
    """Escapes in delimiters and formats."""

    def test_escapes_stand_for_bytes(self) -> None:
        """Other characters are encoded as UTF-8."""
        for text, data in (("\\n", b"\n"), ("\\t|\\0", b"\t|\0"), ("\\x1f\\xff", b"\x1f\xff"),
                           ("\\u20ac\u20ac", b"\xe2\x82\xac" * 2), ("\\\\n", b"\\n"),
                           ("ab", b"ab")):
            self.assertEqual(unescaped(text), data, text)

    def test_any_other_escape_is_refused(self) -> None:
        """The error has the escape."""
        for text in ("\\", "\\x", "\\x1", "\\u12", "\\N{foo}", "\\q", "a\\"):
            error = self.assertRaises(ValueError, unescaped, text)
            self.assertIn("is not one of the escapes", str(error))
        self.assertRaises(ValueError, unescaped, "\\ud800")

    def test_lines_that_are_no_messages(self) -> None:
        """A body in base64 has nothing else, and messages have a delimiter."""
        def read(line: bytes, delimiter: bytes = b"\n") -> list[Message]:
            return list(read_messages((io.BytesIO(line),), "T", delimiter, b"", {}, "", True, 0))

        self.assertEqual([each.body for each in read(b'{"body64":"aGVsbG8="}')], [b"hello"])
        self.assertRaises(ValueError, read, b'{"body64":"a!b@c#d$"}')
        self.assertRaises(ValueError, read, b'{"body":"x"}', b"")


class CommandTests(TestCase):
    """Pipes into a broker and out of it."""

    timeout = 120

    def setUp(self) -> None:
        """Start a broker."""
        # On a busy machine a broker has no processor for so long that it refuses what waits.
        running = running_broker({"brokerFastFailureEnable": "false"})
        self.broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        self.where = self.broker.namesrv_address

    def run_command(self, *arguments: str, given: str | bytes = "") -> Result:
        """Run a command with some standard input."""
        return CliRunner().invoke(twistmq, [*arguments, "-n", self.where], input=given)

    def test_lines_come_out_as_they_went_in(self) -> Deferred[Any]:
        """The topic is read to its end, and again by a group, which commits."""
        def run() -> None:
            lines = "".join(f"{number}\n" for number in range(3000))
            # Thousands of messages wait for each other longer than for three seconds somewhere.
            sent = self.run_command("produce", "t", "--timeout", "60", given=lines)
            self.assertEqual(sent.exit_code, 0, msg=sent.output[-1000:])
            found = self.run_command("consume", "t", "--from", "first", "--to", "end")
            self.assertEqual(sorted(map(int, found.stdout.split())), list(range(3000)))
            some = self.run_command("consume", "t", "-g", "g", "--from", "first", "-c", "10")
            more = self.run_command("consume", "t", "-g", "g", "--from", "first", "-c", "10")
            self.assertEqual(len(some.stdout.split()), 10)
            # The first command has acknowledged all that it printed, the last line as well.
            self.assertEqual(set(some.stdout.split()) & set(more.stdout.split()), set())

        return deferToThread(run)

    def test_json_keeps_keys_tags_properties_and_bytes(self) -> Deferred[Any]:
        """A body that is not text is written in base64."""
        def run() -> None:
            rows = [{"body": "x", "tags": "a", "keys": ["k"], "properties": {"p": "v"}},
                    {"body64": "/w=="}]
            given = "\n".join(json.dumps(row) for row in rows)
            self.assertEqual(self.run_command("produce", "t", "--json", given=given).exit_code, 0)
            out = self.run_command("consume", "t", "--from", "first", "--to", "end", "--json")
            found = {row.get("body", row.get("body64")): row
                     for row in map(json.loads, out.stdout.splitlines())}
            self.assertEqual((found["x"]["tags"], found["x"]["keys"]), ("a", ["k"]))
            self.assertEqual(found["x"]["properties"]["p"], "v")
            self.assertIn("/w==", found)

        return deferToThread(run)

    def test_queues_that_a_topic_gets_are_read(self) -> Deferred[Any]:
        """The topic gets more queues on the broker and on another one; all later
        messages are read.

        The command reads without a group, from the end.
        """
        self.patch(consume_module, "_ROUTE_S", 0.1)
        # A queue that was there before, at a broker that was away, is read from the start on.
        self.patch(consume_module, "_CLOCKS_S", 0)
        seen: list[bytes] = []

        def read() -> None:
            with closing(consume_module._of_queues(
                    self.where, "grows", "last", False, "", "*", {},
                    consume_module._Unreadable("skip"))) as messages:
                for message in messages:
                    seen.append(message.body)
                    if message.body == b"stop":
                        break

        def run() -> None:
            with Client(self.where) as client, Producer(self.where, group="p") as producer, (
                    running_broker({"namesrvAddr": self.where, "brokerName": "second",
                                    "brokerClusterName": "DefaultCluster"})) as second:
                self.make_topic(client, self.broker.broker_address, 1)
                wait_until("the topic", lambda: has_queues(client, 1))
                [first] = client.read_queues("grows")
                producer.send("grows", b"before", queue=first)
                reading = threading.Thread(target=read, daemon=True)
                reading.start()
                sent = 0
                while not seen and sent < 1000:
                    producer.send("grows", b"%d" % sent, queue=first)
                    sent += 1
                self.make_topic(client, self.broker.broker_address, 3)
                self.make_topic(client, second.broker_address, 2)
                wait_until("all queues", lambda: has_queues(client, 5))
                new = [queue for queue in client.read_queues("grows") if queue != first]
                for queue in new:
                    producer.send("grows", b"new", queue=queue)
                wait_until("the messages", lambda: seen.count(b"new") == 4)
                producer.send("grows", b"stop", queue=new[-1])
                reading.join(30)
                self.assertFalse(reading.is_alive())
            self.assertNotIn(b"before", seen)
            self.assertEqual(len(seen), len(set(seen)) + 3)

        def has_queues(client: Client, count: int) -> bool:
            try:
                return len(client.read_queues("grows", again=True)) == count
            except RequestRefused:
                return False

        return deferToThread(run)

    def test_a_broker_that_is_away(self) -> Deferred[Any]:
        """Other brokers are read in the meantime, and its messages follow; one line is logged.

        When all messages up to an end are wanted, its absence is an error.
        """
        said = io.StringIO()
        self.patch(consume_module, "_AWAY_S", 0.1)
        self.patch(consume_module, "_ROUTE_S", 0.1)
        self.patch(sys, "stderr", said)
        pull, search, away = Client.pull, Client.min_offset, {"second"}
        seen: list[bytes] = []

        def refuse(queue: MessageQueue) -> None:
            if queue.broker_name in away:
                raise RemotingConnectError("refused")

        def pulled(client: Client, queue: MessageQueue, *arguments: Any, **options: Any) -> Any:
            refuse(queue)
            return pull(client, queue, *arguments, **options)

        def searched(client: Client, queue: MessageQueue) -> int:
            refuse(queue)
            return search(client, queue)

        self.patch(Client, "pull", pulled)
        self.patch(Client, "min_offset", searched)

        def messages(to_end: bool = False) -> Any:
            return closing(consume_module._of_queues(
                self.where, "grows", "first", to_end, "", "*", {},
                consume_module._Unreadable("skip")))

        def read() -> None:
            with messages() as found:
                for message in found:
                    seen.append(message.body)
                    if message.body == b"stop":
                        break

        def run() -> None:
            with Client(self.where) as client, Producer(self.where, group="p") as producer, (
                    running_broker({"namesrvAddr": self.where, "brokerName": "second",
                                    "brokerClusterName": "DefaultCluster"})) as second:
                self.make_topic(client, self.broker.broker_address, 1)
                self.make_topic(client, second.broker_address, 1)
                wait_until("all queues", lambda: len(client.read_queues("grows", again=True)) == 2)
                queues = sorted(client.read_queues("grows"),
                                key=lambda each: each.broker_name == "second")
                for number, queue in enumerate(queues):
                    producer.send("grows", b"%d" % number, queue=queue)
                with messages(to_end=True) as found:
                    self.assertRaises(RemotingConnectError, list, found)
                reading = threading.Thread(target=read, daemon=True)
                reading.start()
                for body in (b"0", b"1"):
                    wait_until("a message", lambda body=body: body in seen)  # type: ignore[misc]
                    away.clear()
                # It is away once more.
                away.add("second")
                producer.send("grows", b"more", queue=queues[0])
                wait_until("more", lambda: b"more" in seen)
                wait_until("the second line", lambda: said.getvalue().count("is away") == 2)
                away.clear()
                producer.send("grows", b"stop", queue=queues[1])
                reading.join(30)
                self.assertFalse(reading.is_alive())
            self.assertEqual(seen, [b"0", b"1", b"more", b"stop"])
            self.assertEqual(said.getvalue().count("broker second is away"), 2)

        return deferToThread(run)

    def make_topic(self, client: Client, address: str, queues: int) -> None:
        """Make the topic that grows, or give it more queues."""
        client.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic="grows", default_topic="TBW102", read_queue_nums=queues,
            write_queue_nums=queues, perm=6, topic_filter_type="SINGLE_TAG", topic_sys_flag=0,
            order=False))

    def test_keys_delimiters_filters_and_forms(self) -> Deferred[Any]:
        """A key is before its delimiter; a tag selects; -f gives the format."""
        def run() -> None:
            self.run_command("produce", "t", "-D", ";", "-K", "=", "--tags", "eu", "-H", "a=b",
                             given="k1=one;k2=two")
            self.run_command("produce", "t", "--tags", "us", "--batch", "2", given="three\nfour")
            out = self.run_command("consume", "t", "--from", "first", "--to", "end", "--tag", "eu",
                                   "-f", "%T %k %s\\n")
            self.assertEqual(sorted(out.stdout.splitlines()), ["eu k1 one", "eu k2 two"])

        return deferToThread(run)

    def test_messages_that_no_slave_has_are_told_of(self) -> Deferred[Any]:
        """They are stored, and the command does not fail."""
        def run() -> None:
            with running_broker({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2",
                                 "slaveTimeout": "200"}) as master:
                self.where = master.namesrv_address
                found = self.run_command("produce", "t", given="1\n2\n")
            self.assertEqual((found.exit_code, found.output), (
                0, "twistmq: 2 messages were stored, but the slaves were not waited for\n"))

        return deferToThread(run)

    def test_what_cannot_be_done_is_told_in_one_line(self) -> Deferred[Any]:
        """Statuses: 1 for a failure, 2 for a bad command line."""
        def run() -> None:
            bad = self.run_command("produce", "a b", given="x")
            self.assertEqual(bad.exit_code, 1)
            self.assertEqual(len(bad.output.splitlines()), 1)
            self.assertEqual(self.run_command("produce", "t", "-H", "x", given="y").exit_code, 2)
            self.assertEqual(
                self.run_command("consume", "t", "-g", "g", "--to", "end").exit_code, 2)
            gone = CliRunner().invoke(twistmq, ["consume", "t", "-n", "127.0.0.1:9"])
            self.assertEqual(gone.exit_code, 1)
            self.assertIn("127.0.0.1:9", gone.output)

        return deferToThread(run)

    def test_values_without_a_meaning_are_refused(self) -> Deferred[Any]:
        """The error has the name of the option; nothing is sent or read."""
        def run() -> None:
            for words in (("consume", "t", "--from", "2026-13-01"),
                          ("consume", "t", "--from", "-5"),
                          ("consume", "t", "-c", "-1"), ("produce", "t", "--batch", "0"),
                          ("produce", "t", "--rate", "-5"), ("bench", "producer", "-w", "0"),
                          ("bench", "producer", "--seconds", "0")):
                found = self.run_command(*words, given="x")
                self.assertEqual(found.exit_code, 2, words)
                self.assertIn(words[2], found.output)

        return deferToThread(run)

    def test_lines_of_json_that_are_no_messages_are_named(self) -> Deferred[Any]:
        """The error has their numbers; a single key may be a text."""
        def run() -> None:
            for line, said in (('{"body": "x", "keys": 5}', "its keys are 5"),
                               ('{"body": "x", "properties": 5}', "its properties are 5"),
                               ('{"body": "x", "properties": {"a": 5}}', "its properties are"),
                               ('{"body": "x", "tags": 5}', "its tags is 5"),
                               ('{"body": "x", "keys": "a b"}', "key 'a b': a blank"),
                               ('{"body": "x", "keys": ["a", ""]}', "key '': it is empty"),
                               ('{"body": "x", "tags": "a||b"}', "tag 'a||b': ||"),
                               ('{"keys": "x"}', "no JSON object with a body"),
                               ("nothing", "Expecting value")):
                found = self.run_command(
                    "produce", "t", "--json", given='{"body": "good"}\n' + line)
                self.assertEqual((found.exit_code, len(found.output.splitlines())), (1, 1), line)
                self.assertIn("twistmq: line 2: ", found.output)
                self.assertIn(said, found.output)
            self.run_command("produce", "keys", "--json", given='{"body": "x", "keys": "order-17"}')
            out = self.run_command("consume", "keys", "--from", "first", "--to", "end", "--json")
            self.assertEqual(json.loads(out.stdout)["keys"], ["order-17"])

        return deferToThread(run)

    def test_a_key_that_cannot_be_found_is_named(self) -> Deferred[Any]:
        """The error has the line; earlier messages are sent. An invalid tag is refused as well."""
        def run() -> None:
            found = self.run_command("produce", "t", "-K", ":", given="k:1\no 17:2\n")
            self.assertEqual((found.exit_code, found.output), (
                1, "twistmq: line 2: key 'o 17': a blank separates two keys\n"))
            for tag in ("a||b", " a", "*"):
                found = self.run_command("produce", "t", "--tags", tag, given="3\n")
                self.assertEqual((found.exit_code, len(found.output.splitlines())), (1, 1))
                self.assertIn(f"tag {tag!r}: ", found.output)
            out = self.run_command("consume", "t", "--from", "first", "--to", "end", "-f", "%k %s")
            self.assertEqual(out.stdout, "k 1")

        return deferToThread(run)

    def test_a_line_that_is_no_message_stops_nothing_that_came_before(self) -> Deferred[Any]:
        """The earlier part of a batch is sent."""
        def run() -> None:
            lines = "".join(f'{{"body": "{number}"}}\n' for number in range(1, 150))
            found = self.run_command("produce", "t", "--json", "--batch", "100",
                                     given=f"{lines}nothing\n")
            self.assertEqual((found.exit_code, len(found.output.splitlines())), (1, 1))
            self.assertIn("twistmq: line 150: ", found.output)
            out = self.run_command("consume", "t", "--from", "first", "--to", "end")
            self.assertEqual(sorted(map(int, out.stdout.split())), list(range(1, 150)))

        return deferToThread(run)

    def test_failures_ahead_of_a_line_that_is_no_message_are_told(self) -> Deferred[Any]:
        """All failures are reported, and the line."""
        def script(request: RemotingCommand) -> bytes | None:
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return answer(request, body=route_body({"a": {0: server.address}}))
            if request.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
                return answer(request, ResponseCode.NO_PERMISSION)
            return answer(request)

        def run() -> None:
            for batch in ("1", "2"):
                found = CliRunner().invoke(
                    twistmq, ["produce", "t", "--json", "-n", server.address, "--batch", batch],
                    input='{"body": "x"}\n' * 3 + "nothing\n")
                self.assertEqual(found.exit_code, 1)
                told, line = found.output.splitlines()[-2:]
                self.assertEqual(told, "twistmq: 3 messages were not stored")
                self.assertIn("twistmq: line 4: ", line)

        server = ScriptedServer(script)
        self.addCleanup(server.close)
        return deferToThread(run)

    def test_what_others_say_does_not_act_on_a_terminal(self) -> Deferred[Any]:
        """Remarks of a server, and the unique key of a message that cannot be read: a line each."""
        evil = "\x1b]0;owned\x07\x1b[2J\ntwistmq: forged \u202e"
        server = ScriptedServer(lambda request: answer(request, 1, remark=evil))
        self.addCleanup(server.close)

        def run() -> None:
            for words in (("produce", "t"), ("consume", "t"), ("consume", "t", "-g", "g"),
                          ("request", "t", "x"), ("bench", "producer", "--seconds", "1")):
                found = CliRunner().invoke(twistmq, [*words, "-n", server.address], input="x")
                self.assertEqual(found.exit_code, 1, words)
                lines = found.output.splitlines()
                self.assertTrue(all(map(str.isprintable, lines)), msg=f"{words} {lines}")
                self.assertFalse([line for line in lines if line.startswith("twistmq: forged")])
            producer: Any
            with Producer(self.where, group="p") as producer:
                producer.send("t", b"no zlib", sys_flag=1, properties={"UNIQ_KEY": evil})
            found = self.run_command("consume", "t", "--from", "first", "--to", "end")
            [line, _] = found.output.splitlines()
            self.assertTrue(line.isprintable(), msg=line)
            self.assertIn(r"left out: <ReceivedMessage \x1b]0;owned\x07\x1b[2J\ntwistmq:", line)

        return deferToThread(run)

    def test_a_group_of_what_is_not_there_is_an_error(self) -> Deferred[Any]:
        """The error is the same as without a group, and as for a load."""
        def run() -> None:
            for words in (("consume", "nosuch"), ("consume", "nosuch", "-g", "g"),
                          ("bench", "consumer", "-t", "nosuch", "--seconds", "1")):
                found = self.run_command(*words)
                self.assertEqual(found.exit_code, 1, words)
                self.assertIn("nosuch", found.output)

        return deferToThread(run)

    def test_a_sigterm_ends_a_member_with_its_commits(self) -> Deferred[Any]:
        """As after Ctrl-C, printed messages are not read again, except the last line."""
        def run() -> None:
            lines = "".join(f"{each}\n" for each in range(500))
            self.run_command("produce", "t", "--timeout", "60", given=lines)
            code = "from twistmq.tools.entry import main; raise SystemExit(main())"
            member = subprocess.Popen(
                [sys.executable, "-c", code, "consume", "t", "-g", "g", "--from", "first", "-n",
                 self.where], stdout=subprocess.PIPE, text=True)
            assert member.stdout is not None
            seen = [member.stdout.readline() for _ in range(500)]
            member.terminate()
            self.assertEqual(member.wait(30), 143)
            self.assertEqual(member.stdout.read(), "")
            member.stdout.close()
            self.run_command("produce", "t", given="last\n")
            more = self.run_command("consume", "t", "-g", "g", "--from", "first", "-c", "1")
            again = set(more.stdout.split()) & {line.strip() for line in seen}
            self.assertLessEqual(again, {seen[-1].strip()})

        return deferToThread(run)

    def test_a_member_that_is_killed_has_printed_what_it_acknowledged(self) -> Deferred[Any]:
        """A burst of lines does not wait in a buffer for the next message."""
        def run() -> None:
            lines = [f"{each}\n" for each in range(500)]
            self.run_command("produce", "t", "--timeout", "60", given="".join(lines))
            code = "from twistmq.tools.entry import main; raise SystemExit(main())"
            member = subprocess.Popen(
                [sys.executable, "-c", code, "consume", "t", "-g", "g", "--from", "first", "-n",
                 self.where], stdout=subprocess.PIPE, text=True,
                # The variable would have Python write each line at once.
                env={name: value for name, value in os.environ.items()
                     if name != "PYTHONUNBUFFERED"})
            assert member.stdout is not None
            with Client(self.where) as client:
                queues = client.read_queues("t")
                wait_until("all are acknowledged", lambda: sum(
                    client.group_offset("g", queue) or 0 for queue in queues) == len(lines))
            member.kill()
            member.wait(30)
            self.assertEqual(sorted(member.stdout), sorted(lines))
            member.stdout.close()

        return deferToThread(run)

    def test_the_program_loads_no_server_for_a_command_of_the_client(self) -> None:
        """The short program gives the output and the status of the whole command line."""
        for words in (["consume", "-h"], ["produce"], ["consume", "t", "--nothing"]):
            said = []
            for module in ("entry", "command_line"):
                code = (f"import sys; sys.argv = ['twistmq', *{words}]\n"
                        f"from twistmq.tools.{module} import main\n"
                        "try: status = main()\n"
                        "except SystemExit as end: status = end.code\n"
                        "loaded = [name for name in ('twisted', 'pluggy', "
                        "'twistmq.broker.edge.boot', 'twistmq.broker.config.settings') "
                        "if name in sys.modules]\n"
                        "print('status', status)\n"
                        "print(*loaded, file=sys.stderr if loaded else sys.stdout)")
                done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                      timeout=60)
                said.append((done.stdout.split(), done.stderr.split()))
            own, whole = said
            self.assertIn("status", own[0])
            self.assertEqual(own[0], whole[0])
            self.assertEqual(own[1], [word for word in whole[1] if not word.startswith("twistmq.")])

    def test_messages_that_may_be_stored_are_told_from_those_that_are_not(self) -> Deferred[Any]:
        """A broker that does not answer, or closes the connection, may have stored them."""
        replies: list[str] = []

        def script(request: RemotingCommand) -> bytes | None:
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return answer(request, body=route_body({"a": {0: server.address}}))
            if request.code not in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
                return answer(request)
            if replies[0] == "lost":
                raise ConnectionError
            return answer(request, ResponseCode.NO_PERMISSION) if replies[0] == "refused" else None

        def run() -> None:
            for reply, said in (("refused", "2 messages were not stored"),
                                ("late", "2 messages may not have been stored"),
                                ("lost", "2 messages may not have been stored")):
                replies[:] = [reply]
                for batch in ("1", "2"):
                    found = CliRunner().invoke(
                        twistmq, ["produce", "t", "--timeout", "2", "-n", server.address,
                                  "--batch", batch], input="x\ny\n")
                    self.assertEqual((found.exit_code, found.output.splitlines()[-1]),
                                     (1, f"twistmq: {said}"), msg=reply)
                    self.assertEqual(found.output.count("stored"), 1, msg=reply)

        server = ScriptedServer(script)
        self.addCleanup(server.close)
        return deferToThread(run)

    def test_a_reader_that_ends_early_is_no_failure(self) -> Deferred[Any]:
        """``| head`` in a shell ends the command quietly."""
        def run() -> None:
            lines = "".join(f"{each:0100d}\n" for each in range(5000))
            self.run_command("produce", "t", "--timeout", "60", given=lines)
            command = (f"{sys.executable} -c 'from twistmq.tools.command_line import main; "
                       f"raise SystemExit(main())' consume t --from first -n {self.where}")
            result = subprocess.run(
                ["bash", "-c", f"set -o pipefail; {command} | head -2"], env={**os.environ},
                capture_output=True, timeout=60)
            self.assertEqual((result.returncode, result.stderr), (0, b""))

        return deferToThread(run)

    def test_a_request_prints_the_reply_of_its_consumer(self) -> Deferred[Any]:
        """Without a consumer it fails after its time-out."""
        def run() -> None:
            with Consumer(self.where, group="quotes", topics="quotes", start="first") as consumer:
                def answer(message: ReceivedMessage[Any]) -> None:
                    consumer.reply(message, b"1.09")

                serving = threading.Thread(target=consumer.run, args=(answer,))
                serving.start()
                with Client(self.where) as client, Producer(client=client) as producer:
                    producer.send("quotes", b"makes the topic")
                out = self.run_command("request", "quotes", "EUR", "--wait", "30")
                consumer.stop()
                serving.join()
            self.assertEqual((out.exit_code, out.stdout), (0, "1.09\n"))
            late = self.run_command("request", "quotes", "USD", "--wait", "0.2")
            self.assertEqual(late.exit_code, 1)

        return deferToThread(run)

    def test_bench_prints_its_figures(self) -> Deferred[Any]:
        """The output is text or JSON."""
        def run() -> None:
            found = self.run_command("bench", "producer", "--seconds", "0.3", "--json", "-t", "t")
            figures = json.loads(found.stdout)
            self.assertGreater(figures["messages"], 0)
            self.assertEqual(figures["failed"], 0)
            text = self.run_command("bench", "latency", "--seconds", "0.2", "-t", "t")
            self.assertIn("p99, ms: ", text.stdout)
            found = self.run_command("bench", "consumer", "--seconds", "1", "--json", "-t", "t")
            self.assertGreater(json.loads(found.stdout)["messages"], 0)

        return deferToThread(run)
