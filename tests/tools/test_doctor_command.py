"""Set-ups that are broken, each in one way, and set-ups that are not."""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.client.http_page import HttpPage
from tests.broker.client.name_table import NameTable
from tests.interop.servers import MAIN, free_port, servers
from twistmq.broker.config.setting_rows import local_address
from twistmq.broker.edge.boot import StartRefused
from twistmq.broker.testing import running_broker
from twistmq.tools.command_line import main
from twistmq.tools.doctor.findings import Finding, Level
from twistmq.tools.doctor.host_checks import cores_finding
from twistmq.tools.doctor_command import examine, examine_brokers


class DoctorTestCase(SynchronousTestCase):
    """``self.folder`` is empty, ``self.port`` free."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-doctor-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.store = self.folder / "store"
        self.port = free_port()

    def settings(self, **changes: str) -> dict[str, str]:
        """Those of a broker that is well."""
        return {"storePathRootDir": str(self.store), "listenPort": str(self.port),
                "bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1", "brokerName": "broker-a",
                **{name.replace("__", "."): text for name, text in changes.items()}}

    def examine(self, file: str | None = None, *, running: bool = False,
                **changes: str) -> list[Finding]:
        return examine("broker", str(self.folder), file, self.settings(**changes), running=running)

    def assertBroken(self, findings: Sequence[Finding], check: str, *texts: str) -> None:
        """One thing is broken, and only that: it is named, and what to mend."""
        broken = [each for each in findings if each.level is Level.BROKEN]
        self.assertEqual([each.check for each in broken], [check], msg=str(broken))
        self.assertTrue(broken[0].mend)
        for text in texts:
            self.assertIn(text, f"{broken[0].text} -> {broken[0].mend}")


class BrokenTests(DoctorTestCase):
    """Each set-up, what is said of it, and nothing else that is broken."""

    def test_a_sound_set_up_has_nothing_broken(self) -> None:
        """First: a set-up that is well has nothing broken, new or with a store."""
        for _ in range(2):
            broken = [each for each in self.examine() if each.level is Level.BROKEN]
            self.assertEqual(broken, [])
            with running_broker({"storePathRootDir": str(self.store)}) as broker, \
                    broker.client() as client:
                client.send("T", b"body")

    def test_port_in_use(self) -> None:
        """Another process has the port."""
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port - 2))
            other.listen()
            self.assertBroken(self.examine(), "port", f"127.0.0.1:{self.port - 2}",
                              "two below listenPort", "in use", "ss -ltnp")

    def test_address_of_another_host(self) -> None:
        """It is told to listen on an address that this host has not."""
        findings = [each for each in self.examine(bindAddress="192.0.2.7", brokerIP1="192.0.2.7")
                    if "two below" not in each.text]
        self.assertBroken(findings, "port", "192.0.2.7", "this host has no such address", "0.0.0.0")

    def test_clients_are_told_loopback(self) -> None:
        """The trap of brokerIP1: the broker listens for all, and each client looks at itself."""
        self.assertBroken(self.examine(bindAddress="0.0.0.0"), "address", "get the address",
                          "set brokerIP1")

    def test_clients_are_told_a_wildcard(self) -> None:
        """Clients cannot connect to 0.0.0.0."""
        self.assertBroken(self.examine(brokerIP1="0.0.0.0"), "address", "brokerIP1=0.0.0.0")

    def test_clients_are_told_a_name_without_address(self) -> None:
        """The name resolves to nothing."""
        self.assertBroken(self.examine(brokerIP1="broker.invalid"), "address", "broker.invalid")

    def test_name_server_is_not_there(self) -> None:
        """No server listens at the address."""
        address = f"127.0.0.1:{free_port()}"
        self.assertBroken(self.examine(namesrvAddr=address), "name server", address, "firewall")

    def test_name_server_is_a_broker(self) -> None:
        """The port is a broker's."""
        with running_broker() as broker:
            self.assertBroken(self.examine(namesrvAddr=broker.broker_address), "name server",
                              broker.broker_address, "is not a name server", "9876")

    def test_address_server(self) -> None:
        """It is asked, and each name server it names."""
        page = HttpPage("nothing")
        self.addCleanup(page.stop)
        given = {"namesrvAddr": "", "fetchNamesrvAddrByAddressServer": "true",
                 "rmqAddressServerDomain": page.address, "brokerName": "broker-b"}
        self.assertBroken(self.examine(**given), "name server",
                          f"http://{page.address}/rocketmq/nsaddr names no name server", "one line")
        with running_broker({"brokerName": "broker-a"}) as broker:
            page.text = broker.namesrv_address
            texts = [each.text for each in self.examine(**given) if each.check == "name server"]
        self.assertEqual(texts, [f"http://{page.address}/rocketmq/nsaddr names 1",
                                 f"{broker.namesrv_address} answers, 1 brokers"])

    def test_dns_is_asked_for_the_name(self) -> None:
        """DNS is asked for the name, and each name server behind it."""
        names = NameTable(ns=[])
        self.patch(socket, "getaddrinfo", names)
        given = {"namesrvAddr": "ns:9876", "fetchNameSrvAddrByDnsLookup": "true",
                 "bindAddress": "0.0.0.0", "brokerIP1": local_address(), "brokerName": "broker-b"}
        self.assertBroken(self.examine(**given), "name server", "ns:9876 cannot be resolved",
                          "fetchNameSrvAddrByDnsLookup")
        names.addresses["ns"] = ["127.0.0.1"]
        with running_broker({"brokerName": "broker-a"}) as broker:
            port = broker.namesrv_address.rpartition(":")[2]
            given["namesrvAddr"] = f"ns:{port}"
            texts = [each.text for each in self.examine(**given) if each.check == "name server"]
        self.assertEqual(texts, [f"ns:{port} stands for 127.0.0.1:{port}",
                                 f"127.0.0.1:{port} answers, 1 brokers"])

    def test_name_is_taken(self) -> None:
        """Another broker has the name already; a broker that registers again has not."""
        with running_broker({"brokerName": "broker-a"}) as broker:
            self.assertBroken(self.examine(namesrvAddr=broker.namesrv_address), "name server",
                              "already knows a broker broker-a", broker.broker_address,
                              "brokerName")
            findings = self.examine(namesrvAddr=broker.namesrv_address, brokerName="broker-b")
            self.assertIn(f"{broker.namesrv_address} answers, 1 brokers",
                          [each.text for each in findings])

    def test_mistakes_in_the_file(self) -> None:
        """Every one is told: a name with a slip, values of the wrong type, out of bounds."""
        file = self.folder / "broker.conf"
        file.write_text("flushDiskTyp = SYNC_FLUSH\nmaxMessageSize = big\nfoo = bar\n"
                        "autoCreateTopicEnable = yes\ndeleteWhen = 04\nflushDiskType=NEVER\n"
                        "deleteWhen = 05\n")
        findings = self.examine(str(file))
        broken = "\n".join(each.text for each in findings if each.level is Level.BROKEN)
        for text in ("flushDiskTyp (did you mean flushDiskType?)",
                     f"maxMessageSize=big ({file}:2): the value is not a whole number",
                     f"autoCreateTopicEnable=yes ({file}:4)", f"flushDiskType=NEVER ({file}:6)"):
            self.assertIn(text, broken)
        self.assertEqual(broken.count("\n"), 3)
        known = "\n".join(each.text for each in findings if each.level is Level.WARN)
        self.assertIn("foo", known)
        self.assertIn("deleteWhen occurs 2 times, lines 5, 7", known)

    def test_a_missing_file_of_settings_is_found(self) -> None:
        """The file of settings is not there."""
        self.assertBroken(self.examine(str(self.folder / "broker.conf")), "settings file",
                          f"{self.folder}/broker.conf: No such file")

    def test_settings_that_make_no_broker(self) -> None:
        """What a start refuses as a whole."""
        self.assertBroken(self.examine(brokerRole="SLAVE"), "settings", "Slave's brokerId")
        self.assertBroken(self.examine(deleteWhen="25"), "settings", "deleteWhen=25")

    def test_plugin_is_not_installed(self) -> None:
        """It is asked for by name."""
        self.assertBroken(self.examine(plugins__enabled="admin,nobody"), "plugins", "nobody",
                          "not installed")

    def test_folder_is_a_file(self) -> None:
        """Something lies where the store is to be."""
        self.store.write_text("")
        self.assertBroken(self.examine(), "store", f"{self.store} is not a folder")

    def test_folder_cannot_be_written(self) -> None:
        """It is another's, or mounted for reading."""
        self.assertBroken(self.examine(storePathRootDir="/proc/twistmq"), "store",
                          "/proc/twistmq (to be made in /proc) cannot be written", "chown")

    def test_store_is_locked(self) -> None:
        """A broker runs on it: another process, which is named."""
        with servers(self.folder / "other", f"storePathRootDir={self.store}") as other:
            self.assertBroken(self.examine(), "store", f"locked by process {other.pid}",
                              "a store of its own")

    def test_store_of_another_size(self) -> None:
        """The commit log's files were made with another size."""
        with running_broker({"storePathRootDir": str(self.store),
                             "mappedFileSizeCommitLog": "1048576"}) as broker, \
                broker.client() as client:
            client.send("T", b"body")
        self.assertBroken(self.examine(), "store", "has 1048576 bytes",
                          "set mappedFileSizeCommitLog=1048576")
        self.assertEqual([each for each in self.examine(mappedFileSizeCommitLog="1048576")
                          if each.level is Level.BROKEN], [])

    def test_clock_was_set_back(self) -> None:
        """The newest message is of a time to come."""
        self.store.mkdir()
        ahead_ms = int(time.time() * 1000) + 3_600_000
        (self.store / "checkpoint").write_bytes(struct.pack(">6q", *[ahead_ms] * 6) + bytes(4048))
        # A checkpoint alone tells of a log that is missing.
        log = self.store / "commitlog" / ("0" * 20)
        log.parent.mkdir()
        log.touch()
        os.truncate(log, 1024**3)
        self.assertBroken(self.examine(), "clock", "s from now",
                          "NTP")

    def test_few_open_files(self) -> None:
        """The limit leaves no room; asked by the command, in a process with that limit."""
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

        done = subprocess.run(
            [sys.executable, "-c", MAIN, "doctor", "--for", "broker", "--json",
             *(f"{name}={text}" for name, text in self.settings().items())],
            preexec_fn=limit, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        page = json.loads(done.stdout)
        self.assertEqual(page["status"], "broken")
        broken = [each for each in page["findings"] if each["level"] == "broken"]
        self.assertEqual([each["check"] for each in broken], ["open files"])
        self.assertIn("LimitNOFILE", broken[0]["mend"])


class RunningTests(DoctorTestCase):
    """A server that is meant to run."""

    def test_it_does(self) -> None:
        """Its ports answer, its store is locked: nothing is broken."""
        with servers(self.folder, "log.level=info") as up:
            found = examine("up", str(self.folder), None, {
                "listenPort": str(up.broker_port), "namesrv.port": up.namesrv.rpartition(":")[2],
            }, running=True)
            self.assertEqual([each for each in found if each.level is Level.BROKEN], [])
            texts = "\n".join(each.text for each in found)
            self.assertIn(f"{self.folder}/store is used by process {up.pid}", texts)
            self.assertIn(f"127.0.0.1:{up.broker_port} (listenPort) answers", texts)

    def test_it_does_not(self) -> None:
        """Each of its ports is reported, and so is the store without a broker."""
        self.store.mkdir()
        broken = [each.check for each in self.examine(running=True)
                  if each.level is Level.BROKEN]
        self.assertEqual(broken, ["port", "port", "store"])

    def test_the_disk_is_not_waited_for(self) -> None:
        """If no setting chooses it, the doctor says which messages may be lost and what to set."""
        [finding] = [each for each in self.examine() if each.check == "flush"]
        self.assertEqual(finding.level, Level.WARN)
        self.assertIn("500 ms", finding.text)
        self.assertIn("flushDiskType=SYNC_FLUSH", finding.mend)
        for chosen in ("ASYNC_FLUSH", "SYNC_FLUSH"):
            [finding] = [each for each in self.examine(flushDiskType=chosen)
                         if each.check == "flush"]
            self.assertEqual((finding.level, finding.text), (Level.OK, f"flushDiskType={chosen}"))

    def test_it_was_killed(self) -> None:
        """That is nothing to mend, but to know."""
        self.store.mkdir()
        (self.store / "abort").touch()
        [finding] = [each for each in self.examine() if "clean stop" in each.text]
        self.assertEqual((finding.check, finding.level), ("store", Level.WARN))


class CommandTests(DoctorTestCase):
    """What is printed, and the exit status."""

    def run_doctor(self, *arguments: str) -> tuple[int, str]:
        runner = CliRunner()
        with runner.isolation() as (out, *_):
            status = main(["doctor", *arguments])
            return status, out.getvalue().decode()

    def given(self, **changes: str) -> list[str]:
        return [f"{name}={text}" for name, text in self.settings(**changes).items()]

    def test_a_table_with_a_line_of_numbers_below(self) -> None:
        """A table with a line of numbers below, and status 0."""
        status, text = self.run_doctor("--for", "broker", *self.given())
        self.assertEqual(status, 0, msg=text)
        *_, last = text.splitlines()
        self.assertRegex(last, r"^0 broken, \d+ to know, \d+ in order$")
        self.assertLessEqual(max(map(len, text.splitlines())), 100 + len(str(self.store)))

    def test_status_1(self) -> None:
        """Status 1; what to mend stands below what is broken."""
        status, text = self.run_doctor("--for", "broker", *self.given(brokerIP1="0.0.0.0"))
        self.assertEqual(status, 1)
        self.assertIn("broken  address", text)
        self.assertIn("-> set brokerIP1 to the address", text)
        self.assertTrue(text.splitlines()[-1].startswith("1 broken, "))

    def test_the_findings_are_printed_as_json(self) -> None:
        """The same as an object."""
        status, text = self.run_doctor("--json", "--for", "broker", *self.given(brokerIP1="::"))
        page = json.loads(text)
        self.assertEqual((status, page["status"]), (1, "broken"))
        self.assertEqual({frozenset(each) for each in page["findings"]},
                         {frozenset({"check", "level", "text", "mend"})})

    def test_each_kind_of_server_has_its_own_checks(self) -> None:
        """A name server has neither a store nor an address that is told; `up` has two servers."""
        conf = f"kvConfigPath={self.folder}/kv.json"
        _, text = self.run_doctor("--for", "namesrv", f"listenPort={self.port}", conf)
        self.assertNotIn("store", text)
        self.assertIn(f":{self.port} (listenPort) is free", text)
        _, text = self.run_doctor("--data", str(self.folder), f"namesrv.port={self.port}",
                                  "listenPort=0")
        self.assertIn("(namesrv.port) is free", text)
        self.assertIn(f"{self.folder}/store will be made", text.replace("\n", ""))

    def test_nothing_is_left_behind(self) -> None:
        """The folder is as it was."""
        self.run_doctor("--for", "broker", *self.given())
        self.assertEqual(os.listdir(self.folder), [])

    def test_bad_command_line(self) -> None:
        """A word that is not a setting is refused, as by the other commands."""
        self.assertEqual(self.run_doctor("word")[0], 1)


class BrokersTests(DoctorTestCase):
    """``--brokers``: the set-up of several brokers."""

    def examine_brokers(
        self, count: str, *, is_group: bool = False, **overrides: str
    ) -> list[Finding]:
        """The findings for so many brokers."""
        return examine_brokers("broker", "", None, {
            "bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1", "brokerName": "b",
            "listenPort": str(self.port), "storePathRootDir": str(self.store), **overrides}, count,
            is_group=is_group)

    def test_the_members_of_a_group(self) -> None:
        """``--group``: each is one of three, and none of them runs yet."""
        found = self.examine_brokers("3", is_group=True)
        self.assertEqual([each for each in found if each.level is Level.BROKEN], [])
        texts = [each.text for each in found if each.check == "group"]
        self.assertEqual(texts[0], "b-0: 3 members: the group survives the loss of 1")
        self.assertIn(f"the member n2 does not answer at 127.0.0.1:{self.port + 21}",
                      "".join(texts))
        self.assertRaises(StartRefused, self.examine_brokers, "4", is_group=True)

    def test_the_ports_of_each_are_looked_at(self) -> None:
        """A port of the second broker is taken: it is named, and nothing else is broken."""
        with socket.socket() as other:
            try:
                other.bind(("127.0.0.1", self.port + 10))
            except OSError:
                self.skipTest("the port above is taken")
            other.listen()
            self.assertBroken(self.examine_brokers("2"), "port", "b-1: ",
                              f"127.0.0.1:{self.port + 10}", "in use")

    def test_settings_that_leave_no_ports_are_broken(self) -> None:
        """Ports beyond the last one."""
        self.assertBroken(self.examine_brokers("2", listenPort="65530"), "brokers",
                          "leaves no port for the broker b-1")

    def test_the_own_file_of_each_is_looked_at(self) -> None:
        """A value in the file of the second broker has no meaning; the first has none."""
        own = self.store / "b-1/config/broker.conf"
        own.parent.mkdir(parents=True)
        own.write_text("maxMessageSize=x\n")
        found = self.examine_brokers("2")
        self.assertBroken(found, "settings", "b-1: maxMessageSize=x", f"{own}:1")

    def test_a_setting_of_one_broker_is_broken(self) -> None:
        """All would copy from one master."""
        self.assertBroken(self.examine_brokers("2", **{"ha.master": "h:1"}), "brokers",
                          "ha.master=h:1", "may apply to only one")

    def test_more_brokers_than_cores_are_a_warning(self) -> None:
        """Each broker can use one core."""
        self.assertEqual(cores_finding(2, cores=2).level, Level.OK)
        finding = cores_finding(3, cores=2)
        self.assertEqual((finding.level, finding.check), (Level.WARN, "cores"))
        self.assertIn("2 for 3 brokers", finding.text)

    def test_a_wrong_number_is_a_bad_command_line(self) -> None:
        """A number of 0 brokers is refused, and so is a number of name servers."""
        for kind, count in (("broker", "0"), ("namesrv", "2")):
            self.assertRaises(StartRefused, examine_brokers, kind, "", None, {}, count)
