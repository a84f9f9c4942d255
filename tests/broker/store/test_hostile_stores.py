"""Stores with strange contents: special files, wrong names, and impossible numbers.

Each is a copy of a store that Apache's broker wrote, with one thing changed. A check says what is
wrong and checks the rest; nothing is waited for, and no memory or time goes into what is not there.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

from twisted.internet import reactor
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twistmq.acl.errors import AclError
from twistmq.acl.folder import AclFolder
from twistmq.acl.table import AccountTable
from twistmq.broker.config.setting_rows import broker_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.boot import broker_settings, exit_status
from twistmq.broker.edge.broker_service import BrokerService
from twistmq.broker.edge.services import load_hooks
from twistmq.broker.errors import SettingsError
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.inspect.files import Reader, Segments, segment_sizes
from twistmq.broker.store.inspect.index_view import IndexView
from twistmq.broker.store.regular_file import open_regular, read_named, read_regular
from twistmq.protocol.record import MessageRecord
from twistmq.tools.command_line import main
from twistmq.tools.doctor.findings import Level, as_json, as_table, warning
from twistmq.tools.doctor.store_checks import store_findings

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "store" / "5.3.3"
#: What begins a terminal's title, and what turns text red, by seven bits and by eight.
TITLE, RED, RED_8, TURN = "\x1b]0;owned\x07", "\x1b[31m", "\x9b31m", "\u202e"


def call(*arguments: str) -> tuple[int, str]:
    """Run a command line in this process; :returns: the status and the output."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(["store", *arguments])
    return status, out.getvalue()


def make_socket(path: Path) -> None:
    """A socket; its name is bound relative to its folder, because addresses are short."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(before)


#: What may have the place of a file, by what the check says of it.
STRANGE: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link that leads nowhere": lambda path: path.symlink_to("nowhere"),
}


class HostileCase(SynchronousTestCase):
    """Copies of a store."""

    def copy(self) -> Path:
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        shutil.copytree(GOLDEN, root)
        return root

    def first(self, root: Path, folder: str) -> Path:
        """Return the first file of a folder of the store."""
        return min(path for path in (root / folder).rglob("[0-9]*") if path.is_file())

    def config(self, root: Path, name: str, text: str) -> None:
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / name).write_text(text)

    def problems(self, root: Path) -> list[str]:
        """Check a store, and return the lines that report a difference."""
        status, out = call("check", str(root))
        lines = [line for line in out.splitlines() if ": expected " in line]
        self.assertEqual(status, int(bool(lines)), msg=out)
        return lines


class FilesTests(HostileCase):
    """Special files in place of files."""

    def test_what_has_the_place_of_a_file(self) -> None:
        """The check names it and does not read it, and checks the rest."""
        for folder in ("commitlog", "consumequeue", "index"):
            for kind, make in STRANGE.items():
                root = self.copy()
                path = self.first(root, folder)
                path.unlink()
                make(path)
                lines = self.problems(root)
                place = path.relative_to(root)
                self.assertIn(f"{place}: expected a regular file, found {kind}", lines)
                status, out = call("dump", str(root), "--no-body")
                if folder == "commitlog":
                    self.assertEqual(status, 1)
                    self.assertIn(f"found {kind}", out)

    def test_in_place_of_tables_and_the_check_point(self) -> None:
        """The same for ``config`` and for the file beside it."""
        for kind, make in STRANGE.items():
            if kind not in ("a named pipe", "a device"):
                continue
            for name in ("config/topics.json", "checkpoint"):
                root = self.copy()
                path = root / name
                path.parent.mkdir(exist_ok=True)
                path.unlink(missing_ok=True)
                make(path)
                lines = self.problems(root)
                self.assertTrue(any(line.startswith(name) and kind in line for line in lines),
                                msg=f"{kind} {name}: {lines}")

    def test_the_disk_of_a_broker(self) -> None:
        """A start opens none of them and does not block."""
        disk = RealDisk()
        for kind, make in STRANGE.items():
            path = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
            make(path)
            for open_it in (disk.open_file, disk.read_file, disk.rewrite, open_regular,
                            read_regular, lambda name: disk.clear_from(name, 0),
                            lambda name: disk.allocate(name, 10),
                            lambda name: disk.write_file(name, b"")):
                if kind == "a link that leads nowhere":
                    continue
                error = self.assertRaises(OSError, open_it, str(path))
                self.assertIn(kind, str(error))

    def test_a_file_that_is_too_long(self) -> None:
        """The limit is checked before anything is read."""
        path = Path(self.mktemp())  # type: ignore[no-untyped-call]
        path.write_bytes(b"12345")
        os.truncate(path, 1 << 40)
        self.assertIn("limit", str(self.assertRaises(OSError, read_regular, path, 1000)))
        os.truncate(path, 5)
        self.assertEqual(read_regular(path, 5), b"12345")

    def test_the_doctor(self) -> None:
        """It names each special file, and does not wait at a pipe."""
        for name in ("commitlog", "checkpoint"):
            root = self.copy()
            path = self.first(root, name) if name == "commitlog" else root / name
            path.unlink(missing_ok=True)
            os.mkfifo(path)
            settings = Settings.load(broker_rows(), overrides={"storePathRootDir": str(root)})
            found = list(store_findings(settings, time.time_ns() // 1_000_000, running=False))
            texts = [each.text for each in found if each.level is not Level.OK]
            self.assertTrue(any(str(path) in text and "a named pipe" in text for text in texts),
                            msg=str(texts))


class StartTests(TestCase):
    """A broker with its plugins is started on a damaged store."""

    def service(self, root: Path) -> BrokerService:
        settings = broker_settings(None, {
            "listenPort": "0", "bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1",
            "namesrvAddr": "", "storePathRootDir": str(root), "log.dir": str(root.parent),
            "mappedFileSizeCommitLog": "1048576", "maxHashSlotNum": "40", "maxIndexNum": "160",
            "mappedFileSizeConsumeQueue": "6000"})
        return BrokerService(reactor, settings, load_hooks(settings))

    async def start(self, root: Path) -> BaseException | None:
        """Start and stop a broker; :returns: why it did not start."""
        service = self.service(root)
        service.startService()
        try:
            await service.started
        except Exception as error:
            return error
        finally:
            await service.stopService()
        return None

    async def test_what_has_the_place_of_a_file(self) -> None:
        """The start ends at once, with the status of a store that cannot be loaded."""
        whole = Path(self.mktemp()).absolute() / "store"
        service = self.service(whole)
        service.startService()
        await service.started
        service.kernel.store.append([MessageRecord(
            "T", 0, b"x", "KEYS\x01k\x02", 0, bytes(8), bytes(8), ["k"], 0)])
        await service.stopService()
        first = {folder: min((whole / folder).rglob("[0-9]*[0-9]"), key=lambda p: -len(p.parts))
                 for folder in ("commitlog", "consumequeue", "index")}
        names = [*(str(path.relative_to(whole)) for path in first.values()),
                 "checkpoint", "abort", "lock", "config/topics.json", "config/timercheck",
                 "timerwheel", "commitlog", "consumequeue", "index", "config"]
        for name in names:
            for kind, make in STRANGE.items():
                if kind == "a link that leads nowhere" or (
                        kind == "a folder" and not (whole / name).is_file()):
                    continue
                root = Path(self.mktemp()).absolute() / "store"
                shutil.copytree(whole, root)
                path = root / name
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
                make(path)
                error = await self.start(root)
                assert error is not None, f"{kind} {name}"
                self.assertEqual(exit_status(error), 253, msg=f"{kind} {name}: {error!r}")
                self.assertIn(str(path), str(error))
                if (whole / name).is_file():
                    self.assertIn(kind, str(error))


class SettingsFilesTests(SynchronousTestCase):
    """Files that are named in settings."""

    def test_a_settings_file(self) -> None:
        """The file is refused without a wait."""
        for kind, make in STRANGE.items():
            if kind == "a link that leads nowhere":
                continue
            path = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
            make(path)
            error = self.assertRaises(SettingsError, broker_settings, str(path), {})
            self.assertEqual(exit_status(error), 253)
            self.assertIn(f"{path}: it is {kind}", str(error))

    def test_what_a_shell_gives(self) -> None:
        """A pipe that is open already is read, and so is the null device."""
        ours, theirs = os.pipe()
        self.addCleanup(os.close, ours)
        os.write(theirs, b"brokerName=piped\n")
        os.close(theirs)
        self.assertEqual(broker_settings(f"/dev/fd/{ours}", {}).text("brokerName"), "piped")
        self.assertEqual(read_named(os.devnull), b"")

    def test_accounts(self) -> None:
        """A pipe in place of the accounts does not pass for a broker without accounts."""
        home = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        (home / "conf").mkdir(parents=True)
        os.mkfifo(home / "conf" / "plain_acl.yml")
        folder = AclFolder(str(home), "conf/plain_acl.yml")
        table = AccountTable(folder, lambda: 0)
        self.assertIn("a named pipe", str(self.assertRaises(AclError, table.load)))


class NamesTests(HostileCase):
    """The names of files and folders."""

    def test_files_far_apart(self) -> None:
        """The files in between are one disagreement, however many they would be."""
        for folder in ("commitlog", "consumequeue"):
            root = self.copy()
            path = self.first(root, folder)
            sizes = segment_sizes(path.parent)
            size = max(sizes.values())
            last = (2**63 - 1) // size * size
            (path.parent / f"{last:020d}").touch()
            lines = self.problems(root)
            self.assertTrue(any("up to" in line for line in lines), msg=str(lines))
            self.assertLess(len(lines), 10)
            call("dump", str(root))
            reader = Reader()
            self.addCleanup(reader.close)
            [gap] = list(Segments(reader, path.parent, {0: size, last: 0}, size).missing())
            self.assertEqual((gap[0], gap[-1]), (size, last - size))

    def test_names_that_are_no_offsets(self) -> None:
        """The check names them; valid files are checked."""
        for name in ("9" * 20, "9" * 200, "0", "7"):
            root = self.copy()
            (root / "commitlog" / name).touch()
            self.assertEqual(self.problems(root), [
                f"commitlog/{name}: expected a regular file, found a file whose name is not an "
                "offset of 20 digits"])
        root = self.copy()
        (root / "commitlog" / "٣").touch()
        shutil.copytree(self.first(root, "consumequeue").parent,
                        root / "consumequeue" / "Golden" / ("9" * 30))
        self.assertEqual(self.problems(root), [])

    def test_nothing_for_a_terminal(self) -> None:
        """The names of folders and topics are printed without control characters."""
        root = self.copy()
        for number, name in enumerate((TITLE, RED, RED_8, TURN)):
            folder = root / "consumequeue" / f"{name}T" / str(number)
            shutil.copytree(self.first(root, "consumequeue").parent, folder)
            self.config(root, f"{name}.json", "{")
        (root / "commitlog" / f"{3 * 2**40:020d}").mkdir()
        printed = [call("check", str(root))[1], call("dump", str(root))[1]]
        os.rename(root, f"{root}{RED}")
        printed.append(call("check", f"{root}{RED}")[1])
        shutil.rmtree(f"{root}{RED}/commitlog")
        printed.append(call("check", f"{root}{RED}")[1])
        for text in printed:
            self.assertTrue(text)
            self.assertTrue(all(each.isprintable() or each == "\n" for each in text), msg=text)

    def test_records_for_a_terminal(self) -> None:
        """Topics, properties and bodies are escaped; JSON has the same content."""
        root = self.copy()
        log = self.first(root, "commitlog")
        data = log.read_bytes()
        for old, new in ((b"Golden", b"\x1b[31m\x07"), (b"KEYS", b"\x1b[4m"),
                         (b"UNIQ_KEY", b"\xc2\x9b31m\xe2\x80\xae")):
            self.assertIn(old, data)
            assert len(old) == len(new) or old == b"UNIQ_KEY"
            data = data.replace(old, new[:len(old)].ljust(len(old), b"x"))
        log.write_bytes(data)
        for arguments in ((), ("--json",)):
            _, out = call("dump", str(root), *arguments)
            self.assertTrue(all(each.isprintable() or each == "\n" for each in out))
        topics = {json.loads(line)["topic"] for line in out.splitlines() if line.startswith("{")}
        self.assertIn("\x1b[31m\x07", topics)

    def test_the_doctors_report(self) -> None:
        """Both forms of the report are escaped."""
        found = [warning("store", f"{TITLE}{RED_8}", f"move {RED}{TURN} away")]
        for text in (as_table(found), as_json(found)):
            self.assertTrue(all(each.isprintable() or each == "\n" for each in text), msg=text)
        self.assertEqual(json.loads(as_json(found))["findings"][0]["text"], f"{TITLE}{RED_8}")


class NumbersTests(HostileCase):
    """Numbers in files."""

    def test_an_index_header_that_counts_too_many(self) -> None:
        """The existing items are checked, and no others."""
        root = self.copy()
        path = self.first(root, "index")
        with open(path, "r+b") as file:
            file.seek(32)
            file.write(struct.pack(">ii", 2**31 - 1, 2**31 - 1))
        reader = Reader()
        self.addCleanup(reader.close)
        view = IndexView(reader, path, 40)
        view.settle()
        self.assertLess(view.count, 1000)
        _, out = call("check", str(root), "--index-slots", "40")
        self.assertIn("as next item, found 2147483647", out)
        lines = self.problems(root)
        self.assertTrue(any("items that fit" in line for line in lines), msg=str(lines))

    def test_files_of_a_few_bytes(self) -> None:
        """Shorter than a header, an item or an entry, of a size that no file has."""
        root = self.copy()
        queue = self.first(root, "consumequeue").relative_to(root).parent
        for name in ("index/20991231235959999", f"index/{'9' * 23}",
                     f"{queue}/00000000000006000000", "timerlog/00000000000104857600", "timerwheel",
                     "checkpoint", f"consumequeue_ext/{queue.relative_to('consumequeue')}/{0:020d}",
                     "commitlog/00000000000001048576"):
            for size in (1, 39, 100, 460):
                root = self.copy()
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(b"\x7f" * size)
                for command in (("check", str(root)),
                                ("dump", str(root), "--topic", "T", "--key", "k")):
                    status, out = call(*command)
                    self.assertIn(status, (0, 1, 2), msg=f"{name} of {size} bytes: {out}")

    def test_an_index_file_that_claims_to_be_long(self) -> None:
        """Its slots would not fit into memory."""
        root = self.copy()
        os.truncate(self.first(root, "index"), 1 << 40)
        self.assertTrue(any("items that fit" in line for line in self.problems(root)))

    def test_tables_that_no_broker_reads(self) -> None:
        """The check names each table with its fault."""
        alike = ",".join(f'"{number * (2**61 - 1)}":[]' for number in range(1, 20_000))
        for name, text, what in (
            ("topics.json", '{"topicConfigTable":{"../x":{"topicName":"../x"}}}', "../x"),
            ("topics.json", '{"topicConfigTable":{"T":{"topicName":"U"}}}', "not a valid topic"),
            ("topics.json", '{"topicConfigTable":{"T":{"topicName":"T","perm":99999999999}}}',
             "perm"),
            ("subscriptionGroup.json", '{"subscriptionGroupTable":{"G":{"groupName":7}}}', "str"),
            ("consumerOffset.json", '{"offsetTable":{"T@G":{"99999999999":1}}}', "2147483647"),
            ("consumerOffset.json", '{"offsetTable":{"T@G":{"0":9223372036854775808}}}', "int"),
            ("lmqConsumerOffset.json", '{"lmqOffsetTable":{"T@G":9223372036854775808}}', "int"),
            ("delayOffset.json", '{"offsetTable":{"1":9223372036854775808}}', "int"),
            ("consumerFilter.json", '{"filterDataByTopic":{"T":5}}', "object"),
            ("consumerOrderInfo.json", '{"table":{"T@G":{"2147483648":{}}}}', "2147483647"),
            ("messageRequestMode.json",
             '{"messageRequestModeMap":{"T":{"G":{"popShareQueueNum":99999999999}}}}', "int"),
            ("topicQueueMapping.json", '{"topicQueueMappingInfoMap":{"T":{"topic":"T","bname":"x",'
             f'"hostedQueues":{{{alike}}}}}}}}}', "2147483647"),
            ("topicQueueMapping.json", '{"topicQueueMappingInfoMap":{"T":{"topic":"T","bname":"x",'
             '"totalQueues":1,"hostedQueues":{"7":[]}}}}', "queue number 7"),
        ):
            root = self.copy()
            self.config(root, name, text)
            lines = self.problems(root)
            self.assertEqual(len(lines), 1, msg=f"{name} {text[:99]}: {lines}")
            self.assertIn(f"config/{name}: expected a table that a broker reads", lines[0])
            self.assertIn(what, lines[0])
