"""The verdicts of the long runs of a group: each of them notices a planted fault."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Final
from unittest.mock import Mock, patch

from twisted.trial.unittest import SynchronousTestCase

from tests.bench.acceptances import Acceptance, first_kept
from tests.history.records import Entry, FinalLog, History, Outcome, Read, Send
from tests.interop.ports import free_port
from tests.interop.servers import wait_until
from tests.long import dledger_core, dledger_soak
from tests.long.compilation import CompilationFailed
from tests.long.dledger_clocks import Jump, jump_faults
from tests.long.dledger_consumers import Handling, consumption_faults, unhandled
from tests.long.dledger_core import digest
from tests.long.dledger_derived import (
    FORGOTTEN_MS,
    MESSAGE_KINDS,
    Message,
    appearances,
    derivation_faults,
    handling_faults,
    kind_of,
)
from tests.long.dledger_disks import StepDown, step_down_faults
from tests.long.dledger_group import Ledger, describe, judge, read_ledger, silences
from tests.long.dledger_kills import Tally
from tests.long.dledger_laggards import CatchUp, MemoryWatch, catch_up_faults, percentile
from tests.long.dledger_links import (
    FIVE,
    LAYOUTS,
    Cut,
    cut_faults,
    cuts_between,
    lost_messages,
    quiet_windows,
    shown_faults,
)
from tests.long.dledger_load import body_id, outcome_of
from tests.long.dledger_mixed import (
    Places,
    expected_queues,
    judge_mixed,
    log_notes,
    queue_faults,
    read_queues,
)
from tests.long.dledger_relay import CALM, Relays, Weather
from tests.long.dledger_soak import (
    Figures,
    Soak,
    Totals,
    growth_faults,
    period_lengths,
    read_figures,
)
from tests.long.dledger_strangers import (
    KINDS,
    Attacker,
    Outlook,
    bound_faults,
    log_faults,
    outlook_faults,
)
from tests.long.dledger_turns import phase_faults, read_turns
from tests.long.dledger_upgrade import election_faults, lost_entries, unnamed_queues
from tests.long.reactor_turns import TurnLooks
from tests.long.shifted_clock import ShiftedClock
from tests.raft.simulation.planted import PLANTED, planted
from twistmq.broker.store.consume_queue import ENTRY, FILLER
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.entry_heads import ENTRY_HEAD_SIZE
from twistmq.broker.testing.ledger_store import LedgerBox
from twistmq.broker.testing.store import message, small_settings
from twistmq.plugins.dledger.translation import read_request
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import RemotingCommand, decode_command
from twistmq.protocol.errors import WireError
from twistmq.protocol.frame import FrameDecoder
from twistmq.raft.actions import Role
from twistmq.raft.events import Asked, Started
from twistmq.raft.hard_state import HardState
from twistmq.raft.member import Member
from twistmq.raft.memory_log import MemoryLog
from twistmq.raft.messages import HeartbeatRequest, Request, TransferRequest
from twistmq.raft.settings import MemberSettings

NODES: Final = ("n0", "n1", "n2")


def history(count: int = 4) -> History:
    """Return a history of acknowledged sends to one queue, each of which took 5 ms."""
    sends = [Send("0", "n0", "T-0", f"<0/0/{number}>", 10 * number, 10 * number + 5, Outcome.OK,
                  100 * number, number) for number in range(count)]
    log = FinalLog([Entry(send.place, send.queue, send.offset, send.body) for send in sends])
    return History(sends, logs=dict.fromkeys(NODES, log))


class JudgeTests(SynchronousTestCase):
    """The judgement of all runs."""

    def with_log(self, *entries: Entry) -> list[str]:
        """Judge a history of which one log has other entries."""
        bad = history()
        bad.logs = {**bad.logs, "n1": FinalLog(entries)}
        return judge(bad)

    def test_a_good_history_has_no_fault(self) -> None:
        """Its counts are described."""
        good = history()
        self.assertEqual(judge(good), [])
        self.assertTrue(describe(good).startswith("4 sends acknowledged, 0 refused, 0 unknown; "
                                                  "4 messages in each of 3 equal logs"))

    def test_a_loss_a_copy_and_a_gap_are_faults(self) -> None:
        """They are found in one of three logs."""
        entries = history().logs["n0"].entries
        self.assertTrue(self.with_log(*entries[:-1])[0].startswith("H1: "))
        copy = replace(entries[0], place=400, offset=4)
        self.assertTrue(self.with_log(*entries, copy)[0].startswith("H3: "))
        found = self.with_log(*entries[:-1], replace(entries[-1], offset=7))
        self.assertIn("the offsets of T-0 in the log of n1 are not 0, 1, 2...", found)

    def test_a_run_without_an_acknowledgement_is_a_fault(self) -> None:
        """Nothing was tried in it."""
        self.assertEqual(judge(History()), ["no message was acknowledged"])

    def test_silences(self) -> None:
        """The longest one comes first, and those at the begin and at the end count."""
        self.assertEqual(silences(history(3), 0, 100), [75, 10, 10, 5])


class DigestTests(SynchronousTestCase):
    """The comparison of the compiled core with the plain one."""

    def test_other_steps_have_another_digest(self) -> None:
        """The digest is always the same for the same core and seeds."""
        digests = [digest(range(2), 0, 0), digest(range(2), 0, 0), digest(range(1, 3), 0, 0)]
        with planted(PLANTED[0]):
            digests.append(digest(range(2), 0, 0))
        self.assertEqual(len(set(digests)), 3)
        self.assertEqual(digests[0], digests[1])

    def test_a_compiled_core_has_to_take_the_same_steps(self) -> None:
        """Otherwise no seed is run, and the status is 2; the same if the compilation fails."""
        def fail(folder: Path) -> None:
            raise CompilationFailed("no compiler")

        args = Namespace(seeds=9, first=0, members=0, java=0, processes=1)
        for make, output, status in (
                (lambda folder: None, digest(range(1), 0, 0), 0),
                (lambda folder: None, digest(range(1, 2), 0, 0), 2), (fail, "", 2)):
            with (patch.object(dledger_core, "compile_core", make),
                  patch.object(dledger_core, "SAME", 1),
                  patch.object(dledger_core, "run_compiled", lambda *_, quiet=False, out=output:
                               CompletedProcess((), 0, out)),
                  redirect_stdout(StringIO()), redirect_stderr(StringIO()) as errors):
                self.assertEqual(dledger_core.run_in_compiled(args), status)
            self.assertEqual(bool(errors.getvalue()), status == 2)


class LoadTests(SynchronousTestCase):
    """The conclusions of writers, and the messages in the files of a ledger."""

    def outcome(self, code: int, remark: str = "") -> Outcome:
        return outcome_of(RemotingCommand(code, 1, remark=remark))

    def test_only_a_refusal_before_the_append_is_one(self) -> None:
        """The outcome of a send without a timely agreement is unknown."""
        self.assertEqual(self.outcome(ResponseCode.SUCCESS), Outcome.OK)
        self.assertEqual(self.outcome(ResponseCode.SERVICE_NOT_AVAILABLE), Outcome.REFUSED)
        self.assertEqual(self.outcome(
            ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy"), Outcome.REFUSED)
        self.assertEqual(self.outcome(ResponseCode.SYSTEM_BUSY, "else"), Outcome.UNKNOWN)
        self.assertEqual(self.outcome(
            ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"), Outcome.UNKNOWN)
        self.assertEqual(self.outcome(ResponseCode.FLUSH_SLAVE_TIMEOUT), Outcome.UNKNOWN)

    def test_bodies(self) -> None:
        """The filling does not count."""
        self.assertEqual(body_id(b"<1/0/20>xxx"), "<1/0/20>")
        self.assertEqual(body_id(b"another <1/0/20>"), "")

    def test_a_ledger_is_read_up_to_its_end(self) -> None:
        """Fillers, barriers, and entries without an agreement do not count."""
        root = Path(self.mktemp()).absolute()
        self.patch(LedgerBox, "folder", f"{root}/dledger-n0")
        box = LedgerBox(RealDisk(), small_settings(
            str(root), mapped_file_size_commit_log=1024)).open()
        self.addCleanup(box.store.close)
        box.lead_term(1)
        for number in range(9):
            box.append(message("T", b"<0/0/%d>xxx" % number, queue_id=1))
        end = box.store.commit_log.max_offset
        box.append(message("T", b"<0/0/9>", queue_id=1))
        folder = root / "dledger-n0/data"
        self.assertGreater(len(list(folder.iterdir())), 1)
        log, terms = read_ledger(folder, end)
        self.assertEqual([(entry.body, entry.queue, entry.offset) for entry in log.entries],
                         [(f"<0/0/{number}>", "T-1", number) for number in range(9)])
        places = [entry.place for entry in log.entries]
        self.assertEqual((places, len(set(places))), (sorted(places), 9))
        self.assertEqual(terms, dict.fromkeys(places, 1))
        # The part from a later entry on can be read if the files before it were removed.
        later = read_ledger(folder, end, places[4] - ENTRY_HEAD_SIZE).log
        self.assertEqual((later.begin, [entry.place for entry in later.entries]),
                         (places[4] - ENTRY_HEAD_SIZE, places[4:]))


class MixedTests(SynchronousTestCase):
    """The judgement of a group in which n0 is Apache's. It leads the term 1, and n1 the term 2."""

    def history(self, *offsets: int, terms: tuple[int, ...] = ()) -> tuple[
            History, dict[int, int]]:
        """Return a history with these offsets of one queue, by default of the term 1."""
        terms = terms or (1,) * len(offsets)
        sends = [Send("0", f"n{term - 1}:1", "T-0", f"<0/0/{number}>", 10 * number, 10 * number + 5,
                      Outcome.OK, 100 * number, offset)
                 for number, (offset, term) in enumerate(zip(offsets, terms, strict=True))]
        log = FinalLog([Entry(send.place, "T-0", send.offset, send.body) for send in sends])
        return (History(sends, logs=dict.fromkeys(NODES, log)),
                {send.place: term for send, term in zip(sends, terms, strict=True)})

    def judge(self, history: History, terms: dict[int, int]) -> tuple[list[str], list[str]]:
        return judge_mixed(history, terms, {"n0": "n0:1"})

    def read(self, node: str, *bodies: tuple[int, str]) -> Read:
        return Read(node, node, "T-0", 100, 101, bodies[0][0], bodies, 0, 10, leads=False)

    def test_right_offsets_need_no_note(self) -> None:
        """Both kinds have led."""
        self.assertEqual(self.judge(*self.history(0, 1, 2, terms=(1, 2, 2))), ([], []))

    def test_offsets_of_apaches_leader_are_counted(self) -> None:
        """An offset that is given twice, or left out, is a fault only if ours gave it."""
        for offsets, text in (((0, 1, 1, 2), "gave 1 offsets twice and left offsets out 0 times"),
                              ((0, 1, 3, 4), "gave 0 offsets twice and left offsets out 1 times")):
            faults, [note] = self.judge(*self.history(*offsets))
            self.assertEqual(faults, [])
            self.assertIn(text, note)
            faults, _ = self.judge(*self.history(*offsets, terms=(1, 1, 2, 2)))
            self.assertIn("was given by a leader of ours", faults[0])

    def test_a_loss_among_such_offsets_is_a_fault(self) -> None:
        """So is a member that lacks an acknowledged message of the queue."""
        history, terms = self.history(0, 1, 1, 2)
        entries = history.logs["n1"].entries
        history.logs = {**history.logs, "n1": FinalLog(entries[:-1])}
        self.assertTrue(self.judge(history, terms)[0][0].startswith("H1: "))

    def test_two_leaders_of_a_term_are_a_fault(self) -> None:
        """Each of them has acknowledged a message."""
        history, terms = self.history(0, 1, terms=(1, 2))
        faults, _ = self.judge(history, dict.fromkeys(terms, 1))
        self.assertEqual(faults, ["['n0:1', 'n1:1'] have led in the term 1"])

    def test_ours_show_the_first_message_of_an_offset(self) -> None:
        """What a broker of Apache's shows is counted."""
        history, terms = self.history(0, 1, 1, 2)
        history.reads = [self.read("n1", (0, "<0/0/0>"), (1, "<0/0/1>"), (2, "<0/0/3>"))]
        self.assertEqual(self.judge(history, terms)[0], [])
        history.reads = [self.read("n1", (0, "<0/0/0>"), (1, "<0/0/2>"))]
        self.assertIn("n1 showed <0/0/2> at 1 of T-0", self.judge(history, terms)[0][0])
        history.reads = [self.read("n0", (0, "<0/0/0>"), (2, "<0/0/3>"))]
        faults, notes = self.judge(history, terms)
        self.assertEqual((faults, notes[1].rpartition(": ")[2]), ([], "H7 1 times"))

    def test_queues_are_what_the_log_says(self) -> None:
        """The first message of an offset stays, and an offset that is left out stays free."""
        entries = self.history(0, 1, 1, 3)[0].logs["n0"].entries
        expected = expected_queues(entries)
        self.assertEqual(expected, {"T-0": [0, 100, None, 300]})
        self.assertEqual(queue_faults("n1", expected, expected), [])
        [fault] = queue_faults("n1", {"T-0": [0, 200, None, 300]}, expected)
        self.assertIn("has 1 entries of other messages, the first one at offset 1", fault)
        [fault] = queue_faults("n1", {"T-0": [0, 100]}, expected)
        self.assertIn("ends at 2 and not at 4", fault)
        self.assertEqual(len(queue_faults("n1", {"T-0": [0, 100, None, 300, 400]}, expected)), 1)

    def test_queues_are_read_from_their_files(self) -> None:
        """A file ends with zeros."""
        folder = Path(self.mktemp()) / "consumequeue/T/3"
        folder.mkdir(parents=True)
        (folder / ("0" * 20)).write_bytes(
            ENTRY.pack(48, 100, 0) + FILLER + ENTRY.pack(300, 100, 7) + bytes(100))
        self.assertEqual(read_queues(folder.parents[2], "T"), {"T-3": [48, None, 300]})
        (folder / ("0" * 20)).rename(folder / f"{2 * ENTRY.size:020}")
        queues = read_queues(folder.parents[2], "T")
        expected: Places = {"T-3": [1, 2, 48, None, 300]}
        self.assertEqual(queue_faults("n1", queues, expected), [])
        self.assertEqual(len(queue_faults("n1", queues, {"T-3": [1, 2, 48, None, 301]})), 1)

    def test_lines_of_apaches_log(self) -> None:
        """They are counted by their kinds, each with one of them."""
        line = "WARN RocketmqStore - Maybe try to build consume queue repeatedly max={} phy={}"
        [note] = log_notes("n0", f"INFO x - started\n{line}1\n{line}2\n")
        self.assertEqual(note, f"the log of n0 says 2 times: {line}1")

    def test_a_turn_counts_its_own_acknowledgements(self) -> None:
        """Those of another broker, those before it, and refusals do not count."""
        history = self.history(0, 1)[0]
        tally, [send, _] = Tally(history), list(history.sends)
        history.sends += [send, replace(send, node="n1:1"), replace(send, outcome=Outcome.REFUSED)]
        self.assertEqual(tally.read("n0:1"), 1)
        history.sends.append(send)
        self.assertEqual(tally.read("n0:1"), 2)


class SoakTests(SynchronousTestCase):
    """The judgement of a run of hours, which is cut into periods."""

    def setUp(self) -> None:
        #: The log, with 100 bytes for each message.
        self.entries: list[Entry] = []
        self.now_ms = 0
        self.history = History()
        group = Mock(ids=NODES, apaches=["n0"], ours_ids={"n1", "n2"}, members={
            node: Mock(address=f"{node}:1") for node in NODES})
        group.wait_for_equal_logs.side_effect = lambda: 100 * len(self.entries)
        self.readers = [Mock(node=node, failure="") for node in NODES]
        loaded = Mock(group=group, history=self.history, readers=self.readers)
        self.soak = Soak(loaded, Mock(), random.Random(0), (120, 300))
        self.patch(dledger_soak, "read_ledger", self.read)

    def read(self, _: object, end: int, begin: int) -> Ledger:
        entries = [entry for entry in self.entries if begin <= entry.place < end]
        return Ledger(FinalLog(entries, begin), {entry.place: 1 for entry in entries})

    def store(self, name: int, offset: int = -1) -> Entry:
        """Append a message to the log, by default at the next offset."""
        offset = len(self.entries) if offset < 0 else offset
        self.entries.append(Entry(100 * len(self.entries), "T-0", offset, f"<0/0/{name}>"))
        return self.entries[-1]

    def send(self, name: int, outcome: Outcome = Outcome.OK, *, is_stored: bool = True) -> None:
        """Send a message, at the next moment."""
        self.now_ms += 10
        entry = self.store(name) if is_stored else Entry(-1, "T-0", -1, f"<0/0/{name}>")
        place, offset = (entry.place, entry.offset) if outcome is Outcome.OK else (-1, -1)
        self.history.sends.append(Send(
            "0", "n1:1", "T-0", entry.body, self.now_ms, self.now_ms + 5, outcome, place, offset))

    def judge(self) -> list[str]:
        return self.soak.judge_period()[0]

    def test_each_period_continues_the_one_before(self) -> None:
        """Its records are forgotten, and a message without an answer may be stored later."""
        for name in range(3):
            self.send(name)
        self.send(7, Outcome.UNKNOWN, is_stored=False)
        self.assertEqual((self.judge(), self.history.sends), ([], []))
        self.store(7)
        self.send(3)
        self.assertEqual(self.judge(), [])
        self.assertEqual(self.soak.totals.places, {"T-0": [0, 100, 200, 300, 400]})
        self.assertEqual(self.soak.totals.outcomes, {"OK": 4, "UNKNOWN": 1})

    def test_faults_of_a_later_period(self) -> None:
        """A loss, a copy of an earlier message, and an offset that is left out are found."""
        for spoil, rule in (
                (lambda: self.entries.pop(), "H1: "), (lambda: self.store(0), "H3: "),
                (lambda: self.store(9, len(self.entries) + 1), "was given by a leader of ours")):
            self.setUp()
            self.send(0)
            self.assertEqual(self.judge(), [])
            self.send(1)
            self.send(2)
            spoil()
            faults = self.judge()
            self.assertTrue(any(rule in fault for fault in faults), faults)

    def test_readers_of_ours_come_to_the_end(self) -> None:
        """Those of Apache's followers are refused."""
        self.patch(dledger_soak, "PATIENCE_SECONDS", 0)
        self.readers[0].has_all_since.return_value = False
        self.send(0)
        self.assertEqual(self.judge(), [])
        self.readers[1].has_all_since.return_value = False
        with self.assertRaises(AssertionError):
            self.judge()

    def test_a_run_that_was_interrupted_continues(self) -> None:
        """What the interrupted period stored is skipped, and the totals go on."""
        path = Path(self.mktemp()) / "soak.json"
        self.assertEqual(Totals.load(path), Totals())
        self.soak.take_up()
        self.send(0)
        self.assertEqual(self.judge(), [])
        totals = self.soak.totals
        totals.killed["n1"] += 1
        totals.periods.append({"n1": Figures(1, 2, 3)})
        totals.save(path)
        self.store(5)
        again = Totals.load(path)
        self.assertEqual(again, totals)
        self.soak = Soak(self.soak._loaded, Mock(), random.Random(0), (120, 300), again)
        self.soak.take_up()
        for reader in self.readers:
            reader.begin_at.assert_called_once_with({"T-0": 2})
        self.send(1)
        self.assertEqual(self.judge(), [])
        self.assertEqual((again.parts, again.places), (2, {"T-0": [0, 100, 200]}))
        self.assertEqual(again.outcomes, {"OK": 2})

    def test_the_periods_of_a_run(self) -> None:
        """They are as long as allowed, the time of the judgement is included, and none is tiny."""
        totals, lengths = Totals(seconds=100), []
        for seconds in period_lengths(totals, 4000, 600):
            lengths.append(seconds)
            totals.seconds += seconds + 7
        self.assertEqual(len(lengths), 7)
        self.assertGreater(min(lengths), 500)
        self.assertLessEqual(max(lengths), 600)
        self.assertEqual(next(period_lengths(Totals(), 60, 600)), 30)

    def test_a_figure_that_grows_is_a_fault(self) -> None:
        """The largest of any broker in the first quarter counts."""
        first = Figures(40 << 10, 60, 50)
        calm: list[dict[str, Figures]] = [{"n1": first, "n2": Figures(30 << 10, 30, 30)}] * 8
        self.assertEqual(growth_faults(calm), [])
        for name, fine, bad in (("memory_kib", 52 << 10, 53 << 10), ("descriptors", 128, 129),
                                ("files", 108, 109)):
            grown = [*calm[:7], {"n2": first._replace(**{name: fine})}]
            self.assertEqual(growth_faults(grown), [])
            grown[7] = {"n2": first._replace(**{name: bad})}
            [fault] = growth_faults(grown)
            self.assertTrue(fault.startswith(f"{name} of n2 grew to {bad:,} in the period 8"))

    def test_figures_of_a_process(self) -> None:
        """A process that has ended has none."""
        folder = Path(self.mktemp())
        (folder / "below").mkdir(parents=True)
        for name in ("a", "below/b", "below/c"):
            (folder / name).touch()
        figures = read_figures(os.getpid(), folder)
        self.assertEqual(figures.files, 3)
        self.assertGreater(min(figures), 1)
        with self.assertRaises(OSError):
            read_figures(-1, folder)


class DerivedTests(SynchronousTestCase):
    """The judgement of messages that brokers derive."""

    def message(self, kind: str, due: float = 0, attempts: int = 1) -> Message:
        return Message(kind, f"<{900 + MESSAGE_KINDS.index(kind)}/0/1>", due, attempts)

    def appeared(
        self, message: Message, *times: float, topic: str = "Later"
    ) -> dict[str, list[float]]:
        """Return what a log says in which a message is in a topic and in that of timers."""
        entries = [Entry(number, f"{topic}-0", number, message.body, time)
                   for number, time in enumerate(times)]
        return appearances([Entry(99, "rmq_sys_wheel_timer-0", 0, message.body, 1), *entries])

    def test_kinds(self) -> None:
        """They are known by the bodies, and other writers have none."""
        self.assertEqual(
            [kind_of(self.message(kind).body) for kind in MESSAGE_KINDS], list(MESSAGE_KINDS))
        self.assertEqual((kind_of("<0/0/1>"), kind_of("<907/0/1>")), ("", ""))

    def test_a_derived_message_appears_once_and_in_time(self) -> None:
        """One that is missing, in another topic or early is a fault."""
        late = self.message("timed", due=1000)
        self.assertEqual(derivation_faults([late], self.appeared(late, 1000), []), [])
        for entries, text in (({}, "never appeared"),
                              (self.appeared(late, 1000, topic="Paid"), "never appeared"),
                              (self.appeared(late, 999), "appeared at 999")):
            [fault] = derivation_faults([late], entries, [])
            self.assertIn(text, fault)
        back = self.message("rolled")
        self.assertEqual(derivation_faults([back], {}, []), [])
        self.assertIn("was rolled back", derivation_faults(
            [back], self.appeared(back, 5, topic="Paid"), [])[0])

    def test_a_kill_or_an_attempt_explains_one_more(self) -> None:
        """A third one needs another kill, and a kill long before explains nothing."""
        sent = self.message("delayed")
        twice, kill = self.appeared(sent, 20_000, 30_000), 20_000 - FORGOTTEN_MS
        self.assertEqual(derivation_faults([sent], twice, [kill]), [])
        self.assertEqual(derivation_faults([sent._replace(attempts=2)], twice, []), [])
        for kills in ([], [kill - 1], [30_001]):
            self.assertIn("appeared 2 times", derivation_faults([sent], twice, kills)[0])
        thrice = self.appeared(sent, 20_000, 21_000, 22_000)
        self.assertEqual(len(derivation_faults([sent], thrice, [kill])), 1)

    def test_handling(self) -> None:
        """Everything but what was rolled back is handled."""
        messages = [self.message(kind) for kind in MESSAGE_KINDS]
        handled = {message.body: [20_000.0] for message in messages if message.kind != "rolled"}
        self.assertEqual(handling_faults(messages, handled, []), [])
        for body in handled:
            [fault] = handling_faults(messages, {**handled, body: []}, [])
            self.assertIn("was never handled", fault)
            again = {**handled, body: [20_000.0, 21_000.0]}
            self.assertEqual(len(handling_faults(messages, again, [])), 1)
            self.assertEqual(handling_faults(messages, again, [20_500]), [])
        back = self.message("rolled").body
        self.assertEqual(handling_faults(messages, {**handled, back: [1.0]}, []),
                         [f"{back} was rolled back and handled"])


class ConsumerTests(SynchronousTestCase):
    """The judgement of consumers."""

    def handling(self, offset: int, begin: int, end: int | None = None) -> Handling:
        return Handling("Orders-0", offset, f"<0/0/{offset}>", begin,
                        begin + 5 if end is None else end)

    def faults(self, *handlings: Handling, kills: tuple[int, ...] = ()) -> list[str]:
        return consumption_faults({"Orders": list(handlings)}, kills)

    def test_a_message_that_a_group_has_not_handled_is_a_fault(self) -> None:
        """Each group needs all acknowledged messages of its topic, and no others."""
        sends = [Send("0", "n0", f"{topic}-0", f"<0/0/{number}>", 0, 5, outcome, number, 0)
                 for number, (topic, outcome) in enumerate((
                     ("Jobs", Outcome.OK), ("Orders", Outcome.OK), ("Jobs", Outcome.UNKNOWN)))]
        job, order = self.handling(0, 10), self.handling(1, 10)
        good = {"Jobs": [job], "Orders": [order], "pop": [job, job], "pull": [job]}
        self.assertEqual(unhandled(History(sends), good), [])
        for group in good:
            [fault] = unhandled(History(sends), {**good, group: []})
            self.assertTrue(fault.startswith(f"{group} never handled "), msg=fault)

    def test_a_kill_explains_a_repetition(self) -> None:
        """It may come 15 s before the first handling, when its offset was not copied yet."""
        first, again = self.handling(0, 20_000), self.handling(0, 30_000)
        self.assertEqual(self.faults(first, again, kills=(25_000,)), [])
        self.assertEqual(self.faults(first, again, kills=(6_000,)), [])

    def test_other_repetitions_are_faults(self) -> None:
        """A kill after the second handling, or long before the first one, explains nothing."""
        first, again = self.handling(0, 20_000), self.handling(0, 30_000)
        for kills in ((), (30_001,), (4_999,)):
            self.assertIn("without a kill", self.faults(first, again, kills=kills)[0])

    def test_one_kill_explains_one_repetition(self) -> None:
        """The third handling is a fault."""
        those = [self.handling(0, 20_000 + 100 * number) for number in range(3)]
        [fault] = self.faults(*those, kills=(19_000,))
        self.assertIn("3 times, and 2 are possible", fault)

    def test_an_ordered_group_may_not_overtake(self) -> None:
        """A message is begun after its predecessor was done, also by another member."""
        good = [self.handling(0, 100), self.handling(1, 105), self.handling(0, 110)]
        self.assertEqual(self.faults(*good, kills=(50,)), [])
        self.assertIn("before the message before it", self.faults(
            self.handling(0, 100), self.handling(1, 104))[0])
        self.assertIn("before the message before it", self.faults(self.handling(1, 104))[0])


class LinkTests(SynchronousTestCase):
    """The judgement of cuts, and the relays."""

    def test_bounds_of_a_cut(self) -> None:
        """Fifteen seconds, two elections in the cut, one after it."""
        good = Cut(("n0", "n1"), 15_000, 2, 1)
        self.assertEqual(cut_faults(good), [])
        for bad in (good._replace(silence_ms=15_001), good._replace(elections=3),
                    good._replace(late_elections=2)):
            self.assertEqual(len(cut_faults(bad)), 1)

    def test_windows_without_an_acknowledgement(self) -> None:
        """Each whole window of 10 s needs one."""
        self.assertEqual(quiet_windows(history(), 0, 35_000), [10_000, 20_000])
        self.assertEqual(quiet_windows(History(), 0, 9_999), [])

    def test_layouts_of_five_members(self) -> None:
        """Halves leave one majority; in a ring and over a bridge, the majorities differ."""
        def reached(name: str) -> list[set[str]]:
            cuts = cuts_between(LAYOUTS[name](FIVE), FIVE)
            self.assertEqual(cuts, {(target, source) for source, target in cuts})
            return [{other for other in FIVE if (member, other) not in cuts} for member in FIVE]

        small, large = {"n0", "n1"}, {"n2", "n3", "n4"}
        self.assertEqual(reached("halves"), [small, small, large, large, large])
        self.assertEqual(reached("bridge"), [
            set(FIVE), {"n0", "n1", "n2"}, {"n0", "n1", "n2"}, {"n0", "n3", "n4"},
            {"n0", "n3", "n4"}])
        neighbours = reached("ring")
        self.assertEqual([len(each) for each in neighbours], [3] * 5)
        self.assertEqual(len({frozenset(each) for each in neighbours}), 5)

    def test_what_a_deposed_leader_must_show(self) -> None:
        """A message that is lost, another one at its offset, and one too many are faults."""
        log = {(0, 0): b"a", (0, 1): b"b"}
        self.assertEqual(shown_faults(log, log) + lost_messages(log, log), [])
        for shown in ({(0, 0): b"a"}, {**log, (0, 1): b"c"}, {**log, (0, 2): b"c"}):
            self.assertEqual(len(shown_faults(shown, log)), 1)
        self.assertEqual(len(lost_messages(log, {(0, 0): b"a"})), 1)
        self.assertEqual(len(lost_messages(log, {**log, (0, 0): b"b"})), 1)

    def test_a_cut_direction_loses_its_frames_alone(self) -> None:
        """Requests arrive and their answers do not; a new connection is not made."""
        echo = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(echo.close)
        got: list[bytes] = []

        def serve() -> None:
            connection, _ = echo.accept()
            with connection:
                while data := connection.recv(100):
                    got.append(data)
                    connection.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with Relays({"a": free_port(), "b": echo.getsockname()[1]}) as relays:
            port = relays.ports_for("a")["b"]
            with socket.create_connection(("127.0.0.1", port), 10) as client:
                client.sendall(b"\0\0\0\2hi")
                self.assertEqual(client.recv(100), b"\0\0\0\2hi")
                relays.weather["b", "a"] = Weather(is_cut=True)
                client.sendall(b"\0\0\0\2ho")
                wait_until("the answer is lost", lambda: relays.lost == 1)
                self.assertEqual(b"".join(got), b"\0\0\0\2hi\0\0\0\2ho")
                relays.weather["b", "a"] = CALM
                relays.weather["a", "b"] = Weather(copied=1.0, delay_ms=1)
                client.sendall(b"\0\0\0\1!")
                wait_until("two copies", lambda: b"".join(got).endswith(2 * b"\0\0\0\1!"))
        thread.join(10)


    def test_a_connection_that_was_made_in_a_cut(self) -> None:
        """It is closed after the cut, so that its member makes another one."""
        with Relays({"a": free_port(), "b": free_port()}) as relays:
            relays.weather["b", "a"] = Weather(is_cut=True)
            address = "127.0.0.1", relays.ports_for("a")["b"]
            with socket.create_connection(address, 10) as client:
                client.sendall(b"\0\0\0\2hi")
                relays.weather["b", "a"] = CALM
                self.assertEqual(client.recv(100), b"")


class OtherTests(SynchronousTestCase):
    """The judgement of upgrades and of reactors."""

    def test_a_step_has_one_election(self) -> None:
        """Two are a fault."""
        self.assertEqual(election_faults("step", 1), [])
        self.assertEqual(election_faults("step", 2), ["step: 2 elections"])

    def test_a_queue_that_loses_or_changes_a_message_is_a_fault(self) -> None:
        """Messages that are added to a queue are not a fault."""
        before = {(0, 0): b"a", (0, 1): b"b"}
        self.assertEqual(lost_entries(before, {**before, (0, 2): b"c"}), [])
        self.assertEqual(len(lost_entries(before, {(0, 0): b"a"})), 1)
        self.assertEqual(len(lost_entries(before, {**before, (0, 1): b"c"})), 1)

    def test_queues_with_offsets_given_twice_are_named(self) -> None:
        """The log has one line for each of them, and the metric a row."""
        lines = [f"the offset 7 of queue {queue_id} of T was given again by a leader that ..."
                 for queue_id in (0, 2)]
        rows = "".join(f'dledger_repeated_offsets_total{{topic="T",queue="{queue_id}"}} 5\n'
                       for queue_id in (0, 2))
        self.assertEqual(unnamed_queues([0, 2, 2], lines, rows), [])
        for bad in ((lines[:1], rows), ([*lines, lines[0]], rows), (lines, ""),
                    (lines, rows.replace('"2"', '"1"'))):
            self.assertEqual(len(unnamed_queues([0, 2], *bad)), 1)

    def test_a_turn_counts_by_its_work(self) -> None:
        """A turn that was long because its thread had no core is not a fault.

        A turn that began before the phase does not count.
        """
        turns = read_turns("10.030 50.0 40.0 0 0 0.0 -\n10.012 12.0 10.1 0 0 8.5 a.b<c.d\n"
                           "11.500 80.0 0.9 0 7 0.0 -\n", 10)
        self.assertEqual([turn.ended for turn in turns], [10.012, 11.5])
        self.assertEqual(phase_faults("push", "n0", turns), [
            "push: the reactor of n0 worked for 10.1 ms in a turn of 12.0 ms, 8.5 ms of it for "
            "garbage; it ran a.b<c.d"])

    def test_a_long_turn_tells_what_it_ran(self) -> None:
        """A signal comes in the turn, and none comes after its end."""
        self.addCleanup(signal.signal, signal.SIGPROF, signal.getsignal(signal.SIGPROF))
        looks = TurnLooks(0.002, (signal.ITIMER_PROF, signal.SIGPROF))
        looks.begin()
        end = time.monotonic() + 2
        while not looks.seen and time.monotonic() < end:
            pass
        self.assertIn("test_long_dledger.test_a_long_turn_tells_what_it_ran<", looks.end())
        self.assertEqual(signal.getitimer(signal.ITIMER_PROF)[0], 0)
        looks.begin()
        self.assertEqual(looks.end(), "-")

    def test_the_first_send_that_the_group_keeps_counts(self) -> None:
        """A send that a leader accepts while it is cut off counts only if it is in the log."""
        def accepted(moment: float, name: str, offset: int) -> Acceptance:
            return Acceptance(moment, name, f"7F00000100002A9F{offset:016X}", b"body")

        early, first, later = accepted(1, "n0", 255), accepted(6, "n1", 255), accepted(7, "n1", 300)
        self.assertEqual([each.offset for each in (early, later)], [255, 300])
        self.assertEqual(first_kept([first, later], lambda each: True), (first, []))
        self.assertEqual(first_kept([later, first, early], lambda each: each.name == "n1"),
                         (first, [early]))
        self.assertEqual(first_kept([early], lambda each: False), (None, [early]))


class DiskTests(SynchronousTestCase):
    """The judgement of leaders whose disks have a fault."""

    def faults(self, history: History, known: float, end: float = 10_000) -> list[str]:
        return step_down_faults(StepDown("n0", 0, known, end), history, 2_000)

    def test_a_leader_that_leads_for_too_long_is_a_fault(self) -> None:
        """So is a group that takes no messages for twenty seconds."""
        self.assertEqual(self.faults(history(), 2_000), [])
        self.assertEqual(self.faults(history(), 2_001), [
            "n0 led for 2001 ms after the fault"])
        [fault] = self.faults(history(), 100, 20_036)
        self.assertTrue(fault.startswith("no message was taken for 20001 ms"), msg=fault)

    def test_an_acknowledgement_after_the_lead_is_a_fault(self) -> None:
        """A hundred milliseconds are allowed, and another broker may acknowledge."""
        late = Send("0", "n0", "T-0", "<0/0/9>", 151, 160, Outcome.OK, 900, 9)
        for send, count in ((late, 1), (replace(late, begin=150), 0),
                            (replace(late, node="n1"), 0),
                            (replace(late, outcome=Outcome.UNKNOWN), 0)):
            found = self.faults(History([*history().sends, send]), 50)
            self.assertEqual(len(found), count, found)


class LaggardTests(SynchronousTestCase):
    """The judgement of leaders whose followers catch up."""

    def test_a_slow_or_a_large_leader_is_a_fault(self) -> None:
        """Twice the time is allowed, short times do not matter."""
        good = CatchUp(60, 120, 100_000, 100_000 + 97_656)
        self.assertEqual(catch_up_faults("behind", good), [])
        self.assertEqual(catch_up_faults("behind", good._replace(
            before_p99_ms=1, p99_ms=50)), [])
        for bad in (good._replace(p99_ms=121), good._replace(memory_kib=197_657)):
            self.assertEqual(len(catch_up_faults("behind", bad)), 1)

    def test_percentiles(self) -> None:
        """Only the acknowledged sends of the time count."""
        sends = [Send("0", "n0", "T-0", f"<0/0/{number}>", 0, number, Outcome.OK)
                 for number in range(1, 101)]
        self.assertEqual(percentile(sends, 0, 100), 100)
        self.assertEqual(percentile(sends, 0, 50), 50)
        self.assertRaises(ValueError, percentile, sends, 200, 300)

    def test_the_largest_memory_counts(self) -> None:
        """It may have been there for a moment only."""
        values = iter([5, 90, 7])
        watch = MemoryWatch(lambda: next(values, 7))
        wait_until("the memory was measured", lambda: watch.largest_kib == 90)
        self.assertEqual(watch.end(), 90)


class ClockTests(SynchronousTestCase):
    """The judgement of jumps of clocks, and the clock that jumps."""

    def test_an_election_or_a_pause_is_a_fault(self) -> None:
        """Five seconds are allowed."""
        good = Jump("n0", 1.0, 0, 5_000)
        self.assertEqual(jump_faults(good), [])
        for bad in (good._replace(elections=1), good._replace(silence_ms=5_001)):
            self.assertEqual(len(jump_faults(bad)), 1)

    def test_a_shifted_clock(self) -> None:
        """Both functions follow the file, and the steady clock does not."""
        file = self.mktemp()
        Path(file).write_text("3600")
        clock = ShiftedClock(file)
        self.assertLess(abs(clock.time() - time.time()), 60)
        clock.read_shift()
        self.assertLess(abs(clock.time() - time.time() - 3600), 60)
        self.assertLess(abs(clock.time_ns() / 1e9 - time.time() - 3600), 60)


class StrangerTests(SynchronousTestCase):
    """The judgement of bad input."""

    def test_another_term_or_leader_is_a_fault(self) -> None:
        """A member that does not answer is one as well."""
        first = Outlook(3, ("n1", "n1", "n1"))
        self.assertEqual(outlook_faults(first, first), [])
        self.assertEqual(outlook_faults(first, Outlook(4, ("n1", "n1", ""))), [
            "the term was 3 and is 4", "n2 followed 'n1' and follows ''"])

    def test_lines_above_warn_are_faults(self) -> None:
        """So are exceptions; words of a warning are not."""
        text = ("2026-11-30T15:25:41+0000 [twistmq.a.B#warn] an #error] of a peer\n"
                "2026-11-30T15:25:42+0000 [twistmq.a.B#error] it fails\n"
                "Traceback (most recent call last):\n")
        self.assertEqual([fault.endswith(end) for fault, end in zip(
            log_faults("n0", text), ("it fails'", "call last):'"), strict=True)], [True, True])

    def test_bounds(self) -> None:
        """Memory, a pause, and a run without attacks."""
        good = [131_072] * 3, 5_000.0, Counter(vote=1), Counter({200: 1})
        self.assertEqual(bound_faults(*good), [])
        for index, bad in enumerate(([0, 131_073, 0], 5_001.0, Counter[str](), Counter[int]())):
            values: list[Any] = list(good)
            values[index] = bad
            self.assertEqual(len(bound_faults(*values)), 1)

    def test_no_input_is_a_request_that_a_member_obeys(self) -> None:
        """Each kind is refused by the port, or by the core in this term."""
        settings = MemberSettings("G0", "n0", NODES)
        member = Member(settings, MemoryLog(), HardState(7, "n1", joined=True), -1)
        member.handle_event(Started(), 0, 0.5)
        member.handle_event(Asked(1, HeartbeatRequest("G0", "n1", "n0", 7, "n1")), 1, 0.5)
        attacker = Attacker(random.Random(1), "n1", 7)
        attacker.member = "n0"
        asked = 0
        for number in range(2_000):
            data = KINDS[number % len(KINDS)](attacker)
            for request in requests_of(data):
                asked += 1
                member.handle_event(Asked(2, request), 2, 0.5)
        self.assertGreater(asked, 200)
        self.assertEqual((member.term, member.role, member.leader), (7, Role.FOLLOWER, "n1"))


def requests_of(data: bytes) -> Iterator[Request]:
    """Return the requests in bytes that the port would pass to the core of n0."""
    for frame in FrameDecoder().feed(data):
        with contextlib.suppress(WireError, KeyError):
            command = decode_command(frame)
            request = read_request(command.code, command.body)
            if request.receiver == "n0" and request.group == "G0" and (
                    request.sender in NODES or isinstance(request, TransferRequest)):
                yield request
