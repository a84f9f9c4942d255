"""A tool's changes of settings: a value that the next start could not use is refused.

A name server and a broker run with messages in the store. Each setting is given values that are odd
for it. Whatever was taken is what a start finds then, and the start must succeed.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import hookimpl
from twistmq.broker.config.properties_file import with_changes
from twistmq.broker.config.settings import SettingCheck, Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.services import UpService
from twistmq.broker.errors import SettingsError
from twistmq.broker.testing.in_process_broker import ReactorThread, running_broker
from twistmq.broker.testing.raw_client import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode

#: Small files, and ports that the system chooses.
FILE = {
    "mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000",
    "mapperFileSizeBatchConsumeQueue": "4600", "maxHashSlotNum": "50", "maxIndexNum": "200",
    "mappedFileSizeTimerLog": "65536", "listenPort": "0", "namesrv.port": "0",
    "metricsPromExporterPort": "0", "autoCreateTopicEnable": "true",
}
#: For a text, a path, or names.
TEXTS = ("", "..", ".", "/dev/null/x", "/proc/x", "/etc/hostname", "256.1.1.1", "10.255.255.1",
         "300.300.300.300", "nosuch", "a/b", "x" * 300, "é" * 200, "a\x00b", "a b", "1", ";;",
         ":::", "a=b", "*", "a|b")
#: They have a round of their own: without plugins their settings mean nothing.
PLUGINS = ("plugins.enabled", "plugins.disabled")


class UpCase(SynchronousTestCase):
    """Starts a name server and a broker whose only settings are in ``broker.conf``."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="twistmq-settings-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.data = self.folder / "data"
        self.data.mkdir()
        self.file = self.data / "broker.conf"
        self.file.write_text(with_changes("", FILE))
        # What a relative path names is in the folder as well.
        here = self.folder / "here" / "and" / "there"
        here.mkdir(parents=True)
        self.addCleanup(os.chdir, Path.cwd())
        os.chdir(here)
        self.held = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.held.close)
        self.thread = ReactorThread()
        self.addCleanup(self.thread.stop)
        self.service: UpService | None = None
        self.addCleanup(self.stop)

    @property
    def up(self) -> UpService:
        assert self.service is not None
        return self.service

    def start(self) -> None:
        """Start as a process that gets only its folder."""
        def begin() -> Any:
            settings = boot.up_settings(str(self.data), None, {})
            self.service = UpService(
                self.thread.reactor, boot.name_server_settings(settings), settings)
            self.service.startService()
            return self.service.started

        try:
            self.thread.call(begin)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        service, self.service = self.service, None
        if service is not None:
            self.thread.call(service.stopService)

    def fill(self) -> None:
        """Have files of each kind: a log, queues, an index, timed messages."""
        with RawClient(f"127.0.0.1:{self.up.broker.port}") as client:
            client.send("T", b"x", keys="k")
            client.send("T", b"later", properties={"TIMER_DELAY_SEC": "3000"})
            while not list((self.data / "store" / "timerlog").glob("0*")):
                client.max_offset("T")
        self.stop()
        self.start()

    def ask(self, code: RequestCode, name: str, value: str) -> tuple[int, str]:
        """Change a setting by request 25 or 318; :returns: code and remark."""
        port = (self.up.broker if code == RequestCode.UPDATE_BROKER_CONFIG
                else self.up.namesrv).port
        with RawClient(f"127.0.0.1:{port}") as client:
            reply = client.request(code, None, with_changes("", {name: value}).encode())
        return reply.code, reply.remark or ""


class RefusedTests(UpCase):
    """Changes with which a process did not start again."""

    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.fill()

    def refused(self, name: str, value: str, why: str) -> None:
        """Check that the change is refused with the reason and has no effect."""
        before = self.file.read_bytes()
        code, remark = self.ask(RequestCode.UPDATE_BROKER_CONFIG, name, value)
        self.assertEqual(code, ResponseCode.SYSTEM_ERROR, msg=f"{name}={value}: {remark}")
        self.assertIn(why, remark, msg=f"{name}={value}")
        self.assertEqual(self.file.read_bytes(), before)

    def test_an_address_of_another_host_is_refused(self) -> None:
        """An address is invalid, of another host, or a name that would have to be looked up."""
        for value in ("256.1.1.1", "localhost"):
            self.refused("bindAddress", value, "is not an IP address")
        self.refused("bindAddress", "10.255.255.1", "is not an address of this host")
        self.refused("brokerIP1", "300.300.300.300", "is not an IP address")
        self.refused("brokerIP1", "", "is not the address or name of a host")
        for name in ("bindAddress", "brokerIP1"):
            code, remark = self.ask(RequestCode.UPDATE_BROKER_CONFIG, name, "127.0.0.1")
            self.assertEqual((code, remark), (ResponseCode.SUCCESS, ""))

    def test_a_port_in_use_is_refused_and_the_own_port_is_kept(self) -> None:
        """A port of another process is refused, also two below; the own ports may be kept."""
        taken = self.held.getsockname()[1]
        for name, port in (("listenPort", taken), ("listenPort", taken + 2),
                           ("namesrv.port", taken)):
            self.refused(name, str(port), "Address already in use")
        self.refused("listenPort", "65536", "is not from 0 to 65535")
        own = str(self.up.broker.port)
        self.assertEqual(self.ask(RequestCode.UPDATE_BROKER_CONFIG, "listenPort", own),
                         (ResponseCode.SUCCESS, "from the next start on: listenPort"))
        self.refused("namesrv.port", own, "is the broker's: listenPort")
        self.assertEqual(self.ask(RequestCode.UPDATE_BROKER_CONFIG, "metricsPromExporterPort", own)
                         [0], ResponseCode.SUCCESS)
        self.refused("metricsExporterType", "PROM", "is the broker's: listenPort")

    def test_a_file_is_refused_as_a_folder(self) -> None:
        """A file, or a path where nothing can be created, is refused as a folder."""
        below_a_file = f"{self.file}/x"
        for name in ("log.dir", "storePathRootDir", "storePathCommitLog"):
            for value in (str(self.file), below_a_file, "/proc/x", "/dev/null/x"):
                self.refused(name, value, name)

    def test_store_of_another_broker(self) -> None:
        """The lock of that store is held."""
        other = ReactorThread()
        self.addCleanup(other.stop)
        settings = boot.up_settings(str(self.folder / "other"), None, {
            "listenPort": "0", "namesrv.port": "0"})
        service = UpService(other.reactor, boot.name_server_settings(settings), settings)

        def begin() -> Any:
            service.startService()
            return service.started

        other.call(begin)
        try:
            root = settings.text("storePathRootDir")
            self.refused("storePathRootDir", root, "is locked by")
            moved = with_changes("", {"storePathRootDir": str(self.folder / "new"),
                                      "storePathCommitLog": f"{root}/commitlog"})
            with RawClient(f"127.0.0.1:{self.up.broker.port}") as client:
                reply = client.request(RequestCode.UPDATE_BROKER_CONFIG, None, moved.encode())
            self.assertIn("another broker uses the folder", reply.remark or "")
        finally:
            other.call(service.stopService)

    def test_sizes_of_files(self) -> None:
        """The broker's files have the current sizes, whether or not any exist."""
        for name in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue",
                     "mapperFileSizeBatchConsumeQueue", "mappedFileSizeTimerLog"):
            self.refused(name, "131072", "is not the size of the files that this broker makes")

    def test_store_with_other_files(self) -> None:
        """An existing folder is checked: the size of its files, and its log."""
        for part, why in (("commitlog", "mappedFileSizeCommitLog"),
                          ("consumequeue/T/0", "mappedFileSizeConsumeQueue"),
                          ("timerlog", "mappedFileSizeTimerLog")):
            store = self.folder / part.partition("/")[0]
            file = store / part / ("0" * 20)
            file.parent.mkdir(parents=True)
            file.write_bytes(bytes(4096))
            self.refused("storePathRootDir", str(store), f"{file} has 4096 bytes")
            self.refused("storePathRootDir", str(store), why)
        store = self.folder / "half"
        shutil.copytree(self.data / "store" / "consumequeue", store / "consumequeue")
        self.refused("storePathRootDir", str(store),
                     "has no file, but other files refer to its messages")

    def test_commit_log_elsewhere(self) -> None:
        """The running broker continues to write at the old path."""
        self.refused("storePathCommitLog", str(self.folder / "log"), "is not where this broker")

    def test_a_plugin_that_is_missing_or_needed_is_refused(self) -> None:
        """A plugin that is not installed, or that another setting needs."""
        self.refused("plugins.enabled", "nosuch", "nosuch not installed")
        conf = self.data / "conf"
        conf.mkdir()
        (conf / "plain_acl.yml").write_text("accounts: []\n")
        self.assertEqual(self.ask(RequestCode.UPDATE_BROKER_CONFIG, "aclEnable", "true"),
                         (ResponseCode.SUCCESS, "from the next start on: aclEnable"))
        for name, value in (("plugins.disabled", "acl"), ("plugins.enabled", "admin,retry")):
            self.refused(name, value, "no plugin that is in use checks requests")
        self.assertEqual(self.ask(RequestCode.UPDATE_BROKER_CONFIG, "plugins.enabled", "acl")[0],
                         ResponseCode.SUCCESS)

    def test_settings_of_plugins(self) -> None:
        """A plugin's own checks, also of one that would be used again."""
        with mock.patch.dict(sys.modules, {"prometheus_client": None}):
            self.refused("metricsExporterType", "PROM", "needs Prometheus's client library")
        self.assertEqual(self.ask(RequestCode.UPDATE_BROKER_CONFIG, "metricsLabel", "a b:c")[0],
                         ResponseCode.SUCCESS)
        self.refused("metricsExporterType", "PROM", "metricsLabel")
        self.stop()
        self.file.write_text(self.file.read_text()
                             + "plugins.disabled=schedule\nmessageDelayLevel=x\n")
        self.start()
        self.refused("plugins.disabled", "retry", "messageDelayLevel: 'x'")

    def test_files_of_the_name_server(self) -> None:
        """No tool may change them, not even by the broker's port."""
        for name in ("kvConfigPath", "configStorePath"):
            for value in ("/dev/null/x", str(self.folder / "x")):
                self.refused(name, value, "a tool cannot change it")

    def test_topics_are_called_so(self) -> None:
        """Topics have these names, and folders of these names."""
        for name in ("brokerName", "brokerClusterName"):
            for value in (".", "..", "x" * 300, ""):
                self.refused(name, value, name)

    def test_what_is_asked_of_another_broker(self) -> None:
        """As at a start, a setting of Apache that is not supported is refused."""
        for name in ("enableDLegerCommitLog", "enableControllerMode"):
            self.refused(name, "true", f"{name}=true")
        self.refused("storeType", "defaultRocksDB", "storeType=")


class Refusing:
    """A plugin, of a broker or a name server, that cannot do with an address."""

    @hookimpl
    def register_setting_checks(self) -> list[SettingCheck]:
        return [SettingCheck(("bindAddress",), self.check)]

    def check(self, settings: Settings) -> None:
        if settings.text("bindAddress") == "127.0.0.9":
            raise settings.error("bindAddress", "is not for me")


class PluginTests(SynchronousTestCase):
    """A plugin's check is one of each server that uses it."""

    def places(self) -> Iterator[dict[str, Any]]:
        """The plugin in a broker, and in the name server beside one."""
        yield {"plugins": [("mine", Refusing())]}
        yield {"namesrv_plugins": [("mine", Refusing())]}

    def test_a_plugins_check_stops_a_start(self) -> None:
        """The check of a plugin stops a start."""
        for place in self.places():
            with self.assertRaises(SettingsError) as caught, running_broker(
                    {"bindAddress": "127.0.0.9"}, **place):
                pass
            self.assertIn("is not for me", str(caught.exception))

    def test_a_plugins_check_refuses_a_change(self) -> None:
        """The check of a plugin refuses a change by the broker's port."""
        for place in self.places():
            with running_broker(**place) as running:
                change = b"bindAddress=127.0.0.9"
                with running.client() as client:
                    reply = client.request(RequestCode.UPDATE_BROKER_CONFIG, None, change)
                self.assertIn("is not for me", reply.remark or "")
