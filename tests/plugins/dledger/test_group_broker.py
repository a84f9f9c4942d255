"""Three brokers of one group: roles, acknowledgements, fail-over, tables and delayed messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet.defer import ensureDeferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.dledger.kernels import NAMES, TOPIC, KernelGroup, Machine
from twistmq.broker.store.commit_flush import CommitFlush
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import pull_header, records_of
from twistmq.plugins.dledger.group_broker import GroupBroker
from twistmq.plugins.dledger.settings import GroupSettings
from twistmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingError
from twistmq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.raft.actions import Role
from twistmq.raft.messages import ResponseCode as TransferCode

README = Path(__file__).resolve().parents[3] / "plugins/dledger/README.md"
LATE = "in-sync replicas not enough"


class GroupCase(SynchronousTestCase):
    """A group that has elected its first leader."""

    def setUp(self) -> None:
        self.group = self.make_group()
        self.leader = self.group.elect()

    def make_group(self) -> KernelGroup:
        return KernelGroup(self)

    def box(self, machine: Machine) -> KernelBox:
        assert machine.box is not None
        return machine.box

    @property
    def followers(self) -> list[Machine]:
        return [machine for machine in self.group.alive if machine is not self.leader]

    def send(self, body: bytes, machine: Machine | None = None) -> None:
        """Send a message, which is acknowledged."""
        reply = self.group.send(machine or self.leader, body)
        self.assertEqual((reply.code, reply.remark), (0, None))

    def files(self, name: str) -> dict[str, bytes]:
        """Return the files of a member's log up to the end of its entries."""
        disk, folder = self.group.machines[name].disk, f"/store/dledger-{name}/data"
        end = self.group.machines[name].kernel.store.commit_log.max_offset
        return {file: disk.read_file(f"{folder}/{file}")[: max(0, end - int(file))]
                for file in disk.list_directory(folder) if file.isdecimal() and int(file) < end}


class RestTests(GroupCase):
    """The periodic tasks of a group without clients."""

    def rests(self, machine: Machine) -> dict[str, int | None]:
        """Return the rests of the tasks of a member that have work now or soon, ms."""
        rests = {task.name: task.rest_ms() for task in machine.kernel.periodic_tasks
                 if task.rest_ms is not None}
        return {name: rest_ms for name, rest_ms in rests.items()
                if rest_ms is not None and rest_ms < 100}

    def test_members_rest(self) -> None:
        """Hardly any task runs more than once a second."""
        self.group.run(20)
        for machine in self.group.alive:
            machine.runs = machine.rests = 0
        self.group.run(10)
        for machine in self.group.alive:
            self.assertLess(machine.runs, 250, machine.name)
            self.assertGreater(machine.rests, 400, machine.name)

    def test_a_send_that_waits(self) -> None:
        """The leader checks it until the group has answered or it is late."""
        self.group.run(2)
        wait = "answer sends that the group has not confirmed"
        self.assertNotIn(wait, self.rests(self.leader))
        for follower in self.followers:
            self.group.isolate(follower.name)
        reply = self.group.begin_send(self.leader, b"late")
        self.assertEqual(self.rests(self.leader)[wait], 0)
        self.group.until(reply, "no reply", 4)
        self.assertNotIn(wait, self.rests(self.leader))

    def test_the_disk_of_the_leader(self) -> None:
        """It is looked at while a sync runs, or while it takes no messages."""
        self.group.run(2)
        look = "look at the disk of the leader"
        follower = self.followers[0]
        for machine in (self.leader, follower):
            self.assertNotIn(look, self.rests(machine))
            machine.kernel.store.log_retention.disk_full = True
        self.assertEqual((look in self.rests(self.leader), look in self.rests(follower)),
                         (True, False))
        self.leader.kernel.store.log_retention.disk_full = False
        self.assertNotIn(look, self.rests(self.leader))
        self.patch(CommitFlush, "is_running", True)
        self.assertIn(look, self.rests(self.leader))

    def test_the_leader_of_a_follower(self) -> None:
        """Name servers are asked again in time; a leader asks nothing."""
        self.group.run(2)
        ask = self.box(self.followers[0]).plugin(GroupBroker).leader_address
        rest_ms = ask.rest_ms()
        assert rest_ms is not None
        self.assertLessEqual(rest_ms, 3000)
        self.assertIs(self.box(self.leader).plugin(GroupBroker).leader_address.rest_ms(), None)


class RoleTests(GroupCase):
    """The master of the group, and the registrations of the brokers."""

    def test_the_leader_is_the_master_of_the_name(self) -> None:
        """The others are slaves, each with the number of the member plus one as its id."""
        self.group.run(1)
        for name, machine in self.group.machines.items():
            kernel = machine.kernel
            if machine is self.leader:
                self.assertEqual((kernel.role, kernel.broker_id), ("SYNC_MASTER", 0))
            else:
                self.assertEqual((kernel.role, kernel.broker_id),
                                 ("SLAVE", NAMES.index(name) + 1))
            self.assertTrue(kernel.identity.registers)

    def test_a_broker_without_a_leader_does_not_register(self) -> None:
        """Without a role the broker does not register, and it refuses sends as a slave does."""
        group = KernelGroup(self)
        for machine in group.machines.values():
            self.assertFalse(machine.kernel.identity.registers)
            self.assertTrue(machine.kernel.is_slave)
            reply = group.send(machine, b"early")
            self.assertEqual(reply.code, ResponseCode.SERVICE_NOT_AVAILABLE)

    def test_a_follower_refuses_sends(self) -> None:
        """Nothing is appended to its log."""
        follower = self.followers[0]
        end = follower.kernel.store.commit_log.max_offset
        self.assertEqual(self.group.send(follower, b"x").code,
                         ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual(follower.kernel.store.commit_log.max_offset, end)

    def test_the_runtime_table_names_the_leader(self) -> None:
        """Tools see the leader, the term and the committed index on every member."""
        self.group.run(2)
        for machine in self.group.alive:
            rows = machine.kernel.hooks.runtime_info()
            self.assertEqual(rows["dledgerLeader"], self.leader.name)
            self.assertEqual(rows["dledgerTerm"], str(self.leader.broker.node.member.term))
            self.assertEqual(rows["dledgerCommittedIndex"], "0")
            self.assertEqual((rows["dledgerGroup"], rows["dledgerMember"]), ("g", machine.name))
            self.assertEqual((rows["dledgerBeginIndex"], rows["dledgerEndIndex"]), ("0", "0"))
            self.assertEqual(rows["dledgerMayVote"], "true")

    def test_the_leader_shows_the_lag_of_the_others(self) -> None:
        """A member that is cut off is not reachable after a while; followers show no lag."""
        near, far = self.followers
        self.group.run(2)
        self.group.isolate(far.name)
        for body in (b"a", b"b"):
            self.send(body)
        self.group.run(6)
        rows = self.leader.kernel.hooks.runtime_info()
        self.assertEqual(rows["dledgerRole"], "leader")
        self.assertEqual((rows[f"dledgerLag.{near.name}"], rows[f"dledgerReachable.{near.name}"]),
                         ("0", "true"))
        self.assertEqual((rows[f"dledgerLag.{far.name}"], rows[f"dledgerReachable.{far.name}"]),
                         ("2", "false"))
        rows = near.kernel.hooks.runtime_info()
        self.assertEqual(rows["dledgerRole"], "follower")
        self.assertEqual([name for name in rows if "." in name and "dledger" in name], [])
        samples = {family.name: dict(family.samples)
                   for family in self.leader.broker.collect_metrics()}
        self.assertEqual(samples["dledger_member_lag_entries"],
                         {(near.name,): 0, (far.name,): 2})
        self.assertEqual(samples["dledger_member_reachable"], {(near.name,): 1, (far.name,): 0})

    def test_the_page_lists_the_metrics(self) -> None:
        """Those of the leader are all that there are."""
        self.group.run(2)
        page = README.read_text()
        for family in self.leader.broker.collect_metrics():
            name = family.name + ("_total" if family.kind == "counter" else "")
            self.assertIn(f"`{name}{{{family.labels[0]}}}`" if family.labels else f"`{name}`", page)

    def test_metrics_count_elections(self) -> None:
        """A member counts a lost leader once, and its role is the sample that is 1."""
        old = self.leader
        self.group.run(2)
        self.group.kill(old.name)
        self.leader = self.group.elect(old.name)
        self.group.run(2)
        for machine in self.group.alive:
            samples = {family.name: dict(family.samples)
                       for family in machine.broker.collect_metrics()}
            role = "leader" if machine is self.leader else "follower"
            self.assertEqual(samples["dledger_role"], {
                (each.value,): int(each.value == role) for each in Role})
            self.assertEqual(samples["dledger_elections"], {(): 1})

    def test_metrics_of_the_leader_and_of_a_follower(self) -> None:
        """One member reports that it leads, and each reports the committed index."""
        self.send(b"a")
        self.group.run(2)
        leads = {}
        for machine in self.group.alive:
            values = {family.name: family.samples[0][1]
                      for family in machine.broker.collect_metrics()}
            leads[machine.name] = values["dledger_leader"]
            self.assertEqual(values["dledger_committed_index"], 1)
            self.assertEqual(values["dledger_waited_sends"], int(machine is self.leader))
        self.assertEqual(sorted(leads.values()), [0, 0, 1])

    def test_metrics_name_queues_whose_offsets_were_given_again(self) -> None:
        """The family has no samples without such a queue, and the page lists it."""
        dispatch = self.leader.kernel.store.dispatch
        families = {family.name for family in self.leader.broker.collect_metrics()}
        self.assertNotIn("dledger_repeated_offsets", families)
        dispatch.repeated_offsets["T", 3] = 2
        [family] = [family for family in self.leader.broker.collect_metrics()
                    if family.name == "dledger_repeated_offsets"]
        self.assertEqual(dict(family.samples), {("T", "3"): 2})
        self.assertIn("`dledger_repeated_offsets_total{topic,queue}`", README.read_text())

    def test_a_group_without_a_leader_is_unhealthy(self) -> None:
        """A short election is not reported, a long one is."""
        check = self.followers[0].kernel.health_checks["group"]
        self.assertEqual(check(), "")
        survivor = self.followers[0]
        for machine in self.group.alive:
            if machine is not survivor:
                self.group.kill(machine.name)
        self.group.run(20)
        self.assertEqual(check(), "")
        self.group.run(20)
        self.assertIn("no leader for", check())
        self.assertNotIn("may not vote", check())

    def test_a_wiped_broker_says_why_there_is_no_leader(self) -> None:
        """Beside one live member, it waits for a leader that the two cannot elect."""
        wiped, other = self.followers
        self.send(b"a")
        self.group.run(2)
        self.group.kill(wiped.name)
        wiped.disk = MemoryDisk()
        self.group.kill(self.leader.name)
        self.group.start(wiped.name)
        self.group.run(40)
        self.assertIn("may not vote before it has caught up",
                      wiped.kernel.health_checks["group"]())
        self.assertEqual(wiped.kernel.hooks.runtime_info()["dledgerMayVote"], "false")
        self.assertNotIn("may not vote", other.kernel.health_checks["group"]())


class LittleMemoryDisk(MemoryDisk):
    """A disk on a machine whose memory holds less than a message."""

    def physical_memory_bytes(self) -> int:
        return 100


class FollowerReadTests(GroupCase):
    """Pulls from followers, by slaveReadEnable."""

    def make_group(self) -> KernelGroup:
        return KernelGroup(self, slaveReadEnable="true")

    def pull(self, machine: Machine) -> tuple[int, list[bytes], int]:
        """Return the code, the bodies and the suggested broker of an answer to a pull."""
        reply = self.box(machine).ask(RequestCode.PULL_MESSAGE, pull_header(TOPIC, 0))
        found = [] if reply.code else [record.body for record in records_of(reply.body)]
        return reply.code, found, reply.header(PullMessageResponseHeader).suggest_which_broker_id

    def test_a_follower_answers_up_to_what_is_agreed(self) -> None:
        """An entry that only the leader and this follower have is not in the answer."""
        self.send(b"a")
        self.group.run(2)
        other = self.followers[0]
        self.assertEqual(self.pull(other), (ResponseCode.SUCCESS, [b"a"], 0))
        for machine in self.followers[1:]:
            self.group.isolate(machine.name)
        self.group.cut.add((other.name, self.leader.name))
        self.group.begin_send(self.leader, b"b")
        self.group.run(0.5)
        log = other.kernel.store.commit_log
        self.assertIn(b"b", log.peek(0, log.max_offset))
        self.assertEqual(self.pull(other)[1], [b"a"])

    def test_the_suggestion_follows_the_settings_of_the_group(self) -> None:
        """A group that reads what may be in memory gets its brokerId, one that lags far behind gets
        whichBrokerWhenConsumeSlowly, from every broker.
        """
        for make_disk, suggested in ((MemoryDisk, 2), (LittleMemoryDisk, 3)):
            self.group = KernelGroup(self, make_disk=make_disk, slaveReadEnable="true")
            self.leader = self.group.elect()
            self.send(b"a")
            self.send(b"b")
            self.group.run(2)
            for machine in self.group.alive:
                machine.kernel.subscription_group.update(SubscriptionGroupConfig(
                    "test_consumer", broker_id=2, which_broker_when_consume_slowly=3), {})
                self.assertEqual(self.pull(machine)[2], suggested)


class FileSizeTests(GroupCase):
    """A member with another mappedFileSizeCommitLog."""

    def setUp(self) -> None:
        super().setUp()
        #: The brokers that were asked for their settings.
        self.asked: list[str] = []
        #: How many of these requests get no answer, and the code of the others; 0 is the broker's.
        self.silent, self.code = 0, 0

    def start_another(self, size: str) -> list[str]:
        """Start a follower with an empty disk; :returns: the log lines about its setting."""
        other = self.followers[0]
        self.group.kill(other.name)
        other.disk = MemoryDisk()
        other.start({"mappedFileSizeCommitLog": size})
        ask = self.group.ask_server

        async def ask_server(address: str, code: int, *rest: Any, **more: Any) -> RemotingCommand:
            if code != RequestCode.GET_BROKER_CONFIG:
                return await ask(address, code, *rest, **more)
            self.asked.append(address)
            if len(self.asked) <= self.silent:
                raise RemotingError("no answer")
            return (RemotingCommand(self.code, 1) if self.code
                    else await ask(address, code, *rest, **more))

        self.box(other).host.ask_server = ask_server  # type: ignore[method-assign]
        with capturedLogs() as events:
            self.group.run(5)
        return [text for event in events
                if "mappedFileSizeCommitLog" in (text := str(formatEvent(event)))]

    def test_the_value_of_the_leader_is_compared(self) -> None:
        """One line names both values and the leader, before an entry that does not fit."""
        [line] = self.start_another("131072")
        address = self.leader.kernel.broker_address
        self.assertTrue(line.startswith(
            f"mappedFileSizeCommitLog is 131072 here and 65536 at the leader {self.leader.name}, "
            f"{address}: "), line)
        self.assertEqual(self.asked, [address])

    def test_each_leader_is_asked_once(self) -> None:
        """The next one is asked as well."""
        self.assertEqual(self.start_another("65536"), [])
        old, new = self.leader, self.followers[1]
        self.assertEqual(self.asked, [old.kernel.broker_address])
        old.broker.node.transfer_lead(new.name)
        self.group.until(lambda: not new.kernel.is_slave, "no transfer")
        self.group.run(5)
        self.assertEqual(self.asked[1:], [new.kernel.broker_address])

    def test_a_leader_without_an_answer_is_asked_again(self) -> None:
        """This is not logged."""
        self.silent = 2
        self.assertEqual(len(self.start_another("131072")), 1)
        self.assertEqual(len(self.asked), 3)

    def test_a_leader_that_refuses_is_not_asked_again(self) -> None:
        """Access control may forbid the request, and this is not logged either."""
        self.code = ResponseCode.NO_PERMISSION
        self.assertEqual(self.start_another("131072"), [])
        self.assertEqual(len(self.asked), 1)

    def test_another_broker_is_not_taken_for_the_leader(self) -> None:
        """Name servers may report the previous leader for a while."""
        previous = self.followers[1]
        self.patch(self.group, "find_members", self.named(previous))
        self.assertEqual(self.start_another("131072"), [])
        self.assertEqual(set(self.asked), {previous.kernel.broker_address})
        self.assertGreater(len(self.asked), 2)

    @staticmethod
    def named(machine: Machine) -> Callable[[str], Awaitable[dict[int, str]]]:
        """Return name servers that report a broker as the master."""
        async def find_members(broker_name: str) -> dict[int, str]:
            return {0: machine.kernel.broker_address}

        return find_members

    def test_one_line_names_the_setting(self) -> None:
        """It comes with the first entry for which the sizes matter, and the group goes on."""
        other = self.followers[0]
        self.group.kill(other.name)
        other.disk = MemoryDisk()
        other.start({"mappedFileSizeCommitLog": "131072"})
        self.group.run(2)
        with capturedLogs() as events:
            for _ in range(4):
                self.send(bytes(20_000))
            self.group.run(5)
        lines = [text for event in events
                 if "mappedFileSizeCommitLog" in (text := str(formatEvent(event)))]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("an entry does not fit", lines[0])


class CommitTests(GroupCase):
    """The acknowledgement of a send, and the time from which its message is readable."""

    def test_a_send_is_acknowledged_when_a_majority_has_it(self) -> None:
        """Before that, the leader itself does not show the message."""
        reply = self.group.begin_send(self.leader, b"a")
        self.assertIsNone(reply())
        self.assertEqual(self.group.bodies(self.leader.name), [])
        self.group.until(reply, "no reply")
        self.assertEqual(self.group.bodies(self.leader.name), [b"a"])

    def test_followers_show_only_what_is_agreed(self) -> None:
        """A follower does not return a message that is not committed."""
        other = self.followers[0]
        for machine in self.followers[1:]:
            self.group.isolate(machine.name)
        self.group.cut.add((other.name, self.leader.name))
        self.group.begin_send(self.leader, b"a")
        self.group.run(0.5)
        self.assertGreater(other.broker.node.member.committed_index, -1)
        self.assertEqual(self.group.bodies(other.name), [])
        self.assertIn(b"a", other.kernel.store.commit_log.peek(
            0, other.kernel.store.commit_log.max_offset))

    def test_a_send_without_a_majority_is_answered_in_time(self) -> None:
        """After 2.5 s the client gets an error with Apache's code and remark."""
        self.group.isolate(self.leader.name)
        began_ms = self.group.now_ms()
        reply = self.group.send(self.leader, b"a")
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SYSTEM_ERROR, LATE))
        self.assertTrue(2500 <= self.group.now_ms() - began_ms <= 2700)
        self.assertEqual(self.group.bodies(self.leader.name), [])

    def test_a_message_that_need_not_wait_waits_for_the_group(self) -> None:
        """WAIT=false does not skip the agreement."""
        self.group.isolate(self.leader.name)
        reply = self.group.send(self.leader, b"a", properties={"WAIT": "false"})
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SYSTEM_ERROR, LATE))


class PendingTests(GroupCase):
    """A group that lets fifty entries wait for a majority."""

    def make_group(self) -> KernelGroup:
        of_member = GroupSettings.of_member
        self.patch(GroupSettings, "of_member",
                   lambda settings: replace(of_member(settings), pending_entries_max=50))
        return super().make_group()

    def test_too_many_entries_without_a_majority_are_refused(self) -> None:
        """A send is refused before its message is appended."""
        self.send(b"a")
        self.group.isolate(self.leader.name)
        for _ in range(50):
            self.group.begin_send(self.leader, b"x")
        log = self.leader.kernel.store.commit_log
        end, end_index = log.max_offset, log.end_index
        self.assertEqual(end_index, 51)
        reply = self.group.send(self.leader, b"y")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_BUSY)
        self.assertIn("PC_SYNCHRONIZED", reply.remark or "")
        self.assertEqual(log.max_offset, end)


class FailoverTests(GroupCase):
    """Leaders that are killed or cut off."""

    def test_another_broker_continues_after_a_kill(self) -> None:
        """The offsets continue, and the old leader returns as a slave with the same log."""
        for number in range(20):
            self.send(b"%d" % number)
        old = self.leader
        self.group.kill(old.name)
        self.leader = self.group.elect()
        self.send(b"after")
        self.group.start(old.name)
        self.group.run(8)
        wanted = [b"%d" % number for number in range(20)] + [b"after"]
        for name in NAMES:
            self.assertEqual(self.group.bodies(name), wanted)
            self.assertEqual(self.files(name), self.files(self.leader.name))
        self.assertEqual(old.kernel.role, "SLAVE")

    def test_sends_during_a_transfer(self) -> None:
        """It takes less than a second; each send is answered, and no acknowledged one is lost."""
        group, old, new = self.group, self.leader, self.followers[0]
        group.run(2)
        begin_ms = group.now_ms()
        codes: list[TransferCode] = []
        old.broker.node.transfer_lead(new.name).addCallback(codes.append)
        replies = []
        while new.kernel.is_slave:
            body = b"%d" % len(replies)
            replies.append((body, group.begin_send(old, body)))
            group.step()
            self.assertLess(group.now_ms() - begin_ms, 1000)
        self.assertEqual(codes, [TransferCode.SUCCESS])
        group.run(1.5)
        answers = {body: reply() for body, reply in replies}
        self.assertNotIn(None, answers.values())
        self.send(b"after", new)
        stored = group.bodies(new.name)
        acknowledged = [body for body, answer in answers.items() if answer.code == 0]
        self.assertEqual([body for body in acknowledged if body not in stored], [])
        refused = [body for body, answer in answers.items()
                   if answer.code == ResponseCode.SYSTEM_BUSY]
        self.assertTrue(refused)
        self.assertEqual([body for body in refused if body in stored], [])
        self.assertEqual(stored[-1], b"after")

    def test_a_leader_that_is_cut_off_answers_and_forgets(self) -> None:
        """Its waiting send is refused, its entry is removed, and its queue offset is used again."""
        self.send(b"first")
        old = self.leader
        self.group.isolate(old.name)
        lost = self.group.begin_send(old, b"lost")
        self.leader = self.group.elect(besides=old.name)
        self.group.until(lost, "a waiting send was not answered", 4)
        answer = lost()
        assert answer is not None
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.group.until(lambda: old.kernel.is_slave, "it stays master", 8)
        self.send(b"second")
        self.group.cut.clear()
        self.group.run(10)
        for name in NAMES:
            self.assertEqual(self.group.bodies(name), [b"first", b"second"])
        self.assertEqual(self.files(old.name), self.files(self.leader.name))
        self.group.kill(self.leader.name)
        self.leader = self.group.elect()
        self.send(b"third")
        self.assertEqual(self.group.bodies(self.leader.name), [b"first", b"second", b"third"])

    def test_a_deposed_leader_refuses_in_the_same_turn(self) -> None:
        """When it hears of the new leader, it answers its waiting send immediately."""
        old = self.leader
        others = [machine.name for machine in self.followers]
        for name in others:
            self.group.cut.add((old.name, name))
        self.group.run(0.1)
        waiting = self.group.begin_send(old, b"lost")
        self.leader = self.group.elect(besides=old.name)
        self.group.until(lambda: old.kernel.is_slave, "it stays master", 3)
        self.assertFalse(old.kernel.store.writable)
        self.assertIsNotNone(waiting())

    def test_all_brokers_die_and_come_back(self) -> None:
        """The acknowledged messages are readable again, and the group accepts further ones."""
        for number in range(5):
            self.send(b"%d" % number)
        for name in NAMES:
            self.group.kill(name)
        for name in NAMES:
            self.group.start(name)
        self.leader = self.group.elect()
        self.send(b"after")
        self.assertEqual(self.group.bodies(self.leader.name),
                         [b"0", b"1", b"2", b"3", b"4", b"after"])

    def test_many_kills_lose_nothing(self) -> None:
        """After each kill another member becomes the leader, and the old one returns."""
        sent = []
        for turn in range(5):
            for number in range(5):
                self.send(b"%d-%d" % (turn, number))
                sent.append(b"%d-%d" % (turn, number))
            dead = self.leader
            self.group.kill(dead.name)
            self.leader = self.group.elect()
            self.group.start(dead.name)
            self.group.run(4)
        self.group.run(5)
        for name in NAMES:
            self.assertEqual(self.group.bodies(name), sent)

    def test_a_broker_that_stops_is_replaced(self) -> None:
        """A leader first transfers the lead to another broker, and its store needs no recovery."""
        self.send(b"a")
        old = self.leader
        self.stop(old)
        [self.leader] = [machine for machine in self.group.alive
                         if machine.broker.node.member.role is Role.LEADER]
        self.group.elect()
        self.send(b"b")
        self.assertEqual(self.group.bodies(self.leader.name), [b"a", b"b"])


    def test_a_broker_that_can_give_the_lead_to_nobody_stops_soon(self) -> None:
        """No other member answers the transfer, so the leader stops one second later."""
        self.send(b"a")
        old = self.leader
        self.group.isolate(old.name)
        began_ms = self.group.now_ms()
        self.stop(old)
        self.assertTrue(900 <= self.group.now_ms() - began_ms <= 1200)

    def stop(self, machine: Machine) -> None:
        """Stop a broker cleanly."""
        kernel = machine.kernel
        stopped = ensureDeferred(kernel.stop())
        self.group.until(lambda: stopped.called, "it does not stop", 3)
        self.successResultOf(stopped)
        self.assertEqual(kernel.store.stop_fault, "")
        machine.box = machine.answer = None


class TableTests(GroupCase):
    """Topics, groups and offsets that followers copy from the leader."""

    def setUp(self) -> None:
        super().setUp()
        self.send(b"a")
        self.leader.kernel.subscription_group.update(SubscriptionGroupConfig("cg"), {})
        self.group.until(lambda: all(
            "cg" in machine.kernel.subscription_group.table for machine in self.group.alive),
            "the group of consumers")

    def commit(self, machine: Machine, offset: int) -> int:
        """Commit an offset of a consumer group."""
        return self.box(machine).ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
                consumer_group="cg", topic=TOPIC, queue_id=0, commit_offset=offset)).code

    def committed(self, machine: Machine) -> int:
        """Return the committed offset of the consumer group."""
        return machine.kernel.consumer_offset.query("cg", TOPIC, 0)

    def test_tables_of_the_leader_reach_the_followers(self) -> None:
        """A new topic and a committed offset reach the followers within a few seconds."""
        self.assertEqual(self.commit(self.leader, 1), ResponseCode.SUCCESS)
        self.leader.kernel.topic_config.update(TopicConfig("other"), {})
        for follower in self.followers:
            self.group.until(lambda follower=follower: self.committed(follower) == 1, "the offset")
            self.group.until(
                lambda follower=follower: "other" in follower.kernel.topic_config.table, "topics")

    def test_a_commit_at_a_follower_reaches_the_leader(self) -> None:
        """A consumer with an old route loses no progress."""
        follower = self.followers[0]
        self.assertEqual(self.commit(follower, 1), ResponseCode.SUCCESS)
        self.group.until(lambda: self.committed(self.leader) == 1, "the offset")

    def test_a_follower_refuses_changes_of_topics(self) -> None:
        """The next copy of the leader's table would undo the change."""
        reply = self.box(self.followers[0]).ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
                topic="new", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4,
                perm=6, topic_filter_type="SINGLE_TAG"))
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertNotIn("new", self.followers[0].kernel.topic_config.table)


class DelayTests(GroupCase):
    """Delayed messages across a change of leader."""

    def test_a_delayed_message_is_delivered_by_the_next_leader(self) -> None:
        """The old leader dies before it is due; it is delivered once."""
        reply = self.group.send(self.leader, b"later", properties={"DELAY": "3"})
        self.assertEqual(reply.code, 0)
        self.send(b"now")
        self.group.run(5)
        self.group.kill(self.leader.name)
        self.leader = self.group.elect()
        self.assertEqual(self.group.bodies(self.leader.name), [b"now"])
        self.group.run(12)
        self.assertEqual(self.group.bodies(self.leader.name), [b"now", b"later"])

    def test_a_delivery_that_the_group_did_not_agree_on_is_made_again(self) -> None:
        """A delivery that is not committed does not count, so the next leader repeats it once."""
        self.group.send(self.leader, b"later", properties={"DELAY": "2"})
        self.group.run(3.5)
        old = self.leader
        self.group.isolate(old.name)
        end = old.kernel.store.commit_log.max_offset
        self.group.until(lambda: old.kernel.store.commit_log.max_offset > end, "no delivery", 4)
        self.leader = self.group.elect(besides=old.name)
        self.group.cut.clear()
        self.group.run(15)
        for name in NAMES:
            self.assertEqual(self.group.bodies(name), [b"later"])
