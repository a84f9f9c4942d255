"""Starts that must fail beside running servers: one clear message, a status, and no remains."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.hostile.case import HostileCase
from tests.hostile.mounts import mount_tmpfs, unmount
from tests.interop.ports import free_port
from tests.interop.servers import Servers
from tests.moved import moved
from twistmq.broker.edge.boot import EXIT_FAILED, EXIT_REFUSED
from twistmq.broker.testing.raw_client import RawClient, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode

_TWISTMQ = [sys.executable, "-c",
            "from twistmq.tools.command_line import main; raise SystemExit(main())"]
_SECONDS = 60


class FailingStartTests(HostileCase):
    """``twistmq`` where it cannot run."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(tempfile.mkdtemp(prefix="twistmq-hostile-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def assertFails(
        self, status: int, reason: str, *arguments: str, open_files: int | None = None
    ) -> None:
        """Check that it ends with this status and one line on standard error with the reason.

        :param open_files: how many it may have; None: as many as the test.
        """
        def limit() -> None:
            if open_files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

        ended = subprocess.run([*_TWISTMQ, *arguments], capture_output=True, text=True,
                               timeout=_SECONDS, cwd=self.folder, preexec_fn=limit,
                               env={**os.environ, "HOME": str(self.folder)})
        self.assertEqual(ended.returncode, status, msg=ended.stdout + ended.stderr)
        self.assertNotIn("Traceback", ended.stdout + ended.stderr)
        self.assertNotIn("boot success. serializeType=JSON and name", ended.stdout)
        lines = ended.stderr.splitlines()
        self.assertEqual(len(lines), 1, msg=ended.stderr)
        self.assertTrue(lines[0].startswith("twistmq: "), msg=ended.stderr)
        self.assertIn(reason, lines[0])
        for log in self.folder.rglob("*.log"):
            self.assertNotIn("Traceback", log.read_text())

    def up(self, data: Path, *more: str) -> list[str]:
        return ["up", "--data", str(data), "--namesrv-port", "0", "--broker-port", "0", *more]

    # --- limits

    def test_few_open_files(self) -> None:
        """A limit that leaves no connections: how many are there, how many are needed."""
        reason = "only 256 files may be open, a server needs 512"
        self.assertFails(EXIT_FAILED, reason, *self.up(self.folder / "data"), open_files=256)
        self.assertFails(EXIT_FAILED, reason, "namesrv", "listenPort=0",
                         f"kvConfigPath={self.folder}/kv.json", f"log.dir={self.folder}/logs",
                         open_files=256)

    # --- ports

    def test_broker_port_in_use(self) -> None:
        """The port is named, and the name server that was started before it stops."""
        port = self.servers.broker_port
        self.assertFails(
            EXIT_FAILED, f"cannot listen on 127.0.0.1:{port}", "up", "--data",
            str(self.folder / "data"), "--namesrv-port", "0", "--broker-port", str(port))
        self.assertFalse((self.folder / "data" / "store" / "abort").exists())

    def test_namesrv_port_in_use(self) -> None:
        """The port belongs to the running name server."""
        port = self.namesrv.rpartition(":")[2]
        self.assertFails(
            EXIT_FAILED, f"cannot listen on 127.0.0.1:{port}", "up", "--data",
            str(self.folder / "data"), "--namesrv-port", port, "--broker-port", "0")

    def test_vip_port_in_use(self) -> None:
        """The second port, two below the broker's, is named as well."""
        port = free_port()
        with socket.create_server(("127.0.0.1", port - 2)):
            self.assertFails(
                EXIT_FAILED, f"cannot listen on 127.0.0.1:{port - 2}", "up", "--data",
                str(self.folder / "data"), "--namesrv-port", "0", "--broker-port", str(port))

    # --- folders

    def test_store_is_locked(self) -> None:
        """The second broker gets the reason; the first one continues."""
        lock = self.servers.data / "store" / "lock"
        reason = f"the store is in use by another broker: {lock}"
        logs = f"log.dir={self.folder / 'logs'}"
        self.assertFails(EXIT_REFUSED, reason, *self.up(self.servers.data, logs))
        self.assertFails(EXIT_REFUSED, reason, "broker", "-n", self.namesrv, "listenPort=0",
                         "bindAddress=127.0.0.1", "brokerIP1=127.0.0.1",
                         f"storePathRootDir={self.servers.data / 'store'}", logs)
        self.assertTrue((self.servers.data / "store" / "abort").exists())

    def test_commit_log_is_locked(self) -> None:
        """The running broker's log under another root, also by a link: it would be overwritten."""
        log = self.servers.data / "store" / "commitlog"
        link = self.folder / "link"
        link.symlink_to(log)
        for path in (log, link):
            self.assertFails(
                EXIT_REFUSED, f"the folder is in use by another broker: {path}", *self.up(
                    self.folder / "data", f"storePathCommitLog={path}"))

    def test_several_folders_for_the_log(self) -> None:
        """Apache's broker uses each of them in turn; here they would be one name."""
        both = f"{self.folder / 'a'},{self.folder / 'b'}"
        self.assertFails(EXIT_REFUSED, f"storePathCommitLog={both}", *self.up(
            self.folder / "data", f"storePathCommitLog={both}"))
        self.assertEqual([path for path in self.folder.iterdir() if path.name[0] in "ab"], [])

    def test_commit_log_is_elsewhere(self) -> None:
        """The folder of the log is wrong; no file is deleted or created."""
        servers = self.own_servers()
        with RawClient(f"127.0.0.1:{servers.broker_port}") as client:
            reply = client.request(RequestCode.SEND_MESSAGE_V2, send_header("elsewhere", 0), b"1")
            self.assertEqual(reply.code, ResponseCode.SUCCESS)
        servers.stop()
        empty = self.folder / "empty"
        reason = f"the commit log {empty} has no file"
        self.assertFails(EXIT_REFUSED, reason, *self.up(
            servers.data, f"storePathCommitLog={empty}"))
        self.assertFalse(empty.exists())
        empty.mkdir()
        self.assertFails(EXIT_REFUSED, reason, *self.up(
            servers.data, f"storePathCommitLog={empty}"))
        servers.start()
        with RawClient(f"127.0.0.1:{servers.broker_port}") as client:
            self.assertEqual([each.body for each in client.pull("elsewhere", 0)], [b"1"])

    def test_file_in_the_way(self) -> None:
        """A file where the folder of the data or of the store should be."""
        data, store = self.folder / "data", self.folder / "store"
        data.write_text("")
        store.write_text("")
        self.assertFails(EXIT_FAILED, f"{data}", *self.up(data))
        self.assertFails(EXIT_REFUSED, f"{store}", *self.up(
            self.folder / "good", f"storePathRootDir={store}"))
        self.assertFails(EXIT_REFUSED, f"{store}", *self.up(
            self.folder / "good", f"storePathCommitLog={store}"))

    def test_files_in_the_way_in_a_store(self) -> None:
        """A file for a folder, or a folder for a file, in a store that was used: it is named.

        tests/broker/store/test_gone_files.py has more of them.
        """
        data = self.used_store(self.folder / "data")
        for name in ("consumequeue/used/0", "timerlog"):
            path = data / "store" / name
            with moved(path, path.with_name(f"{path.name}.away")):
                path.write_text("")
                self.assertFails(EXIT_REFUSED, f"{path}", *self.up(data))
        for name in ("abort", "config/topics.json"):
            path = data / "store" / name
            with moved(path, path.with_name(f"{path.name}.away")):
                path.mkdir()
                self.assertFails(EXIT_REFUSED, f"{path}", *self.up(data))
        self.assertTrue((data / "store" / "consumequeue" / "used").is_dir())

    def used_store(self, data: Path) -> Path:
        """The folder of servers that stored a message and were stopped."""
        servers = Servers(data)
        self.addCleanup(servers.stop)
        servers.start()
        with RawClient(f"127.0.0.1:{servers.broker_port}") as client:
            reply = client.request(
                RequestCode.SEND_MESSAGE_V2, send_header("used", 0, keys="k"), b"1")
            self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(servers.stop(), 0)
        return data

    def test_store_that_may_only_be_read(self) -> None:
        """The whole store or only its log may not be written; nothing changes."""
        disk = self.folder / "disk"
        disk.mkdir()
        fault = mount_tmpfs(disk, "size=64m")
        if fault:
            raise SkipTest(f"a file system cannot be mounted: {fault}")
        self.addCleanup(unmount, disk)
        data = self.used_store(disk / "data")
        shutil.copytree(data / "store", self.folder / "other", ignore=lambda *_: ["commitlog"])
        before = {path: path.stat().st_mtime_ns for path in disk.rglob("*")}
        self.assertEqual(mount_tmpfs(disk, "remount,ro"), "")
        logs = f"log.dir={self.folder / 'logs'}"
        self.assertFails(EXIT_REFUSED, "Read-only file system", *self.up(
            self.folder / "data", f"storePathRootDir={data / 'store'}", logs))
        self.assertFails(EXIT_REFUSED, "Read-only file system", *self.up(
            self.folder / "data", f"storePathRootDir={self.folder / 'other'}",
            f"storePathCommitLog={data / 'store' / 'commitlog'}", logs))
        self.assertEqual({path: path.stat().st_mtime_ns for path in disk.rglob("*")}, before)

    def test_nothing_may_be_written(self) -> None:
        """The folders of the data or of the store exist and may not be written."""
        data = self.unwritable(self.folder / "data")
        self.assertFails(EXIT_FAILED, f"{data}", *self.up(data))
        self.assertFails(EXIT_FAILED, f"{data}", *self.up(data / "deeper"))
        self.assertFails(EXIT_REFUSED, f"{data}", *self.up(
            self.folder / "good", f"storePathRootDir={data}"))
        self.assertFails(EXIT_REFUSED, f"{data}", *self.up(
            self.folder / "good", f"storePathCommitLog={data / 'commitlog'}"))

    def unwritable(self, folder: Path) -> Path:
        """Make a folder to which no user, or only root, may write."""
        folder.mkdir()
        if os.geteuid() != 0:
            folder.chmod(0o555)
            return folder
        # Permissions do not stop root; a file system that is mounted to be read does.
        fault = mount_tmpfs(folder, "ro,size=64k")
        if fault:
            raise SkipTest(f"root may write anywhere, and mount says: {fault}")
        self.addCleanup(unmount, folder)
        return folder

    def test_wrong_contents(self) -> None:
        """A commit log of another file size, and tables that cannot be read, are named."""
        data = self.folder / "data"
        log = data / "store" / "commitlog"
        log.mkdir(parents=True)
        (log / "00000000000000000000").write_bytes(bytes(1000))
        self.assertFails(EXIT_REFUSED, f"{log}/00000000000000000000 has 1000 bytes",
                         *self.up(data))
        shutil.rmtree(log)
        config = data / "store" / "config"
        config.mkdir(exist_ok=True)
        (config / "topics.json").write_text("{broken")
        self.assertFails(EXIT_REFUSED, f"{config}/topics.json", *self.up(data))
