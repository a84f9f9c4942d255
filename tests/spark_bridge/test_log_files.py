"""``format("rocketmq_store")`` with paths of ``pyarrow.fs``: S3 and other file systems."""

from __future__ import annotations

import pickle
import random
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.logs import LogWriter
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.object_store import SECRET, ObjectStore, object_store
from twistmq.integrations.tables import log_files
from twistmq.integrations.tables.log_files import open_log_file, shown_path
from twistmq.integrations.tables.store_read import LostFile
from twistmq.protocol import record
from twistmq.protocol.errors import StoreError
from twistmq.spark_bridge.store_source import StoreSource

fs: Any = import_module("pyarrow.fs")

FILE_SIZE = 40_000


def rows(path: str, **options: str) -> list[dict[str, Any]]:
    """Read a path as Spark does, without Spark; :returns: the rows in the log's order."""
    source = StoreSource({"path": path, **options})
    reader: Any = source.reader(source.schema())
    found = []
    # Tasks are sent copies.
    for part in pickle.loads(pickle.dumps(reader.partitions())):
        for batch in pickle.loads(pickle.dumps(reader)).read(part):
            found += batch.to_pylist()
    return sorted(found, key=lambda row: (row["commitLogOffset"], row["queueOffset"]))


def in_python(root: Path) -> Any:
    """Return a file system in Python that shows the files of a folder."""
    local = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())
    methods: dict[str, Any] = dict.fromkeys(fs.FileSystemHandler.__abstractmethods__)
    methods["get_file_info"] = lambda _, paths: local.get_file_info(paths)
    methods["get_file_info_selector"] = lambda _, selector: local.get_file_info(selector)
    methods["open_input_file"] = lambda _, path: local.open_input_file(path)
    return fs.PyFileSystem(type("Handler", (fs.FileSystemHandler,), methods)())


class StoreCase(SynchronousTestCase):
    """A store of four files."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.log = LogWriter(self.root / "bucket/backup/commitlog", FILE_SIZE)
        rng = random.Random(5)
        for index in range(180):
            self.log.add(rng.choice(["orders", "refunds"]), rng.randbytes(rng.randrange(1500)),
                         f"UNIQ_KEY\x01id{index}\x02TAGS\x01t{index % 3}\x02",
                         stored_ms=1_700_000_000_000 + index * 60_000)
        self.store = self.root / "bucket/backup"


class FileSystemTests(StoreCase):
    """Any file system of pyarrow."""

    def on(self, system: Any, place: str) -> None:
        """Map each URI to a file system and a path in it."""
        def found(uri: str) -> tuple[Any, str]:
            return system, place + uri.partition("memory://")[2].rstrip("/")

        self.patch(log_files, "file_system", found)

    def test_the_rows_are_those_of_local_files(self) -> None:
        """A folder as a tree, a file system in Python, and one in memory are tested."""
        wanted = rows(str(self.store))
        self.assertEqual(len(wanted), 180)
        memory = fs._MockFileSystem()
        memory.create_dir("backup/commitlog")
        for path in self.log.directory.iterdir():
            with memory.open_output_stream(f"backup/commitlog/{path.name}") as file:
                file.write(path.read_bytes())
        for system in (fs.SubTreeFileSystem(str(self.root / "bucket"), fs.LocalFileSystem()),
                       in_python(self.root / "bucket"), memory):
            self.on(system, "")
            for uri in ("memory://backup", "memory://backup/", "memory://backup/commitlog"):
                self.assertEqual(rows(uri), wanted, msg=f"{system} {uri}")
            self.assertEqual(rows("memory://backup", topics="orders"),
                             [row for row in wanted if row["topic"] == "orders"])

    def test_pieces(self) -> None:
        """A large file is read by several tasks, and a last one no further than it is written."""
        log = LogWriter(self.root / "bucket/large/commitlog", 6 << 20)
        for index in range(40):
            log.add(body=bytes([index + 1]) * 100_000)
        self.on(fs.SubTreeFileSystem(str(self.root / "bucket"), fs.LocalFileSystem()), "")
        source = StoreSource({"path": "memory://large", "minPartitions": "9"})
        parts = source.reader(source.schema()).partitions()
        self.assertEqual(len(parts), 4)
        self.assertEqual({part.value.data_end for part in parts}, {log.place})
        self.assertEqual(rows("memory://large", minPartitions="9"),
                         rows(str(self.root / "bucket/large")))

    def test_damage_and_losses(self) -> None:
        """They are reported by path and byte, as for local files."""
        self.on(fs.SubTreeFileSystem(str(self.root / "bucket"), fs.LocalFileSystem()), "")
        place, _ = self.log.written[20]
        self.log.put(place + 4, b"\0\0\0\0")
        error = str(self.assertRaises(StoreError, rows, "memory://backup"))
        self.assertIn(f"memory://backup/commitlog/{place // FILE_SIZE * FILE_SIZE:020d} is damaged "
                      f"at byte {place % FILE_SIZE}", error)
        self.assertEqual(len(rows("memory://backup", failOnDataLoss="false")), 179)
        name = f"{FILE_SIZE:020d}"
        (self.log.directory / name).unlink()
        error = str(self.assertRaises(LostFile, rows, "memory://backup"))
        self.assertIn(f"memory://backup/commitlog/{name} is missing between the others", error)
        (self.log.directory / name).mkdir()
        error = str(self.assertRaises(LostFile, rows, "memory://backup"))
        self.assertIn(f"{name} is a folder", error)
        for uri in ("memory://none", "memory://backup/commitlog/" + name):
            error = str(self.assertRaises(StoreError, rows, uri))
            self.assertIn(f"option path: {uri} has neither a directory commitlog nor files", error)

    def test_a_file_that_is_removed_meanwhile(self) -> None:
        """Its loss is reported with its name."""
        self.on(fs.SubTreeFileSystem(str(self.root / "bucket"), fs.LocalFileSystem()), "")
        source = StoreSource({"path": "memory://backup"})
        reader: Any = source.reader(source.schema())
        part = reader.partitions()[1]
        (self.log.directory / f"{FILE_SIZE:020d}").unlink()
        error = str(self.assertRaises(LostFile, list, reader.read(part)))
        self.assertIn(f"{FILE_SIZE:020d} was removed before it was read", error)

    def test_uris_of_this_machine(self) -> None:
        """They are read like plain paths."""
        spaced = self.root / "with space%25"
        self.store.rename(spaced)
        wanted = rows(str(spaced))
        self.assertEqual(len(wanted), 180)
        for uri in (spaced.as_uri(), "file:" + spaced.as_uri().removeprefix("file://"),
                    "FILE" + spaced.as_uri().removeprefix("file")):
            self.assertEqual(rows(uri), wanted)
        with mock.patch.object(log_files, "file_system", side_effect=AssertionError):
            self.assertEqual(rows(spaced.as_uri()), wanted)


class ObjectStoreTests(StoreCase):
    """URIs of S3, which pyarrow reads over HTTP."""

    def served(self) -> ObjectStore:
        context = object_store(self.root)
        server = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return server

    def test_an_object_store(self) -> None:
        """The rows equal the rows of the local files, also with Hadoop's name of S3."""
        server, wanted = self.served(), rows(str(self.store))
        uri = server.uri("bucket/backup")
        self.assertEqual(rows(uri), wanted)
        self.assertEqual(rows(uri.replace("s3:", "s3a:")), wanted)
        server.ranges.clear()
        late = str(1_700_000_000_000 + 150 * 60_000)
        self.assertEqual(rows(uri, startingTimestamp=late),
                         [row for row in wanted if row["storeTimestamp"].timestamp() * 1000
                          >= int(late)])
        # Of files that are too old only the first record is looked at.
        self.assertEqual([end - begin for key, begin, end in server.ranges
                          if key.endswith(f"{0:020d}") and end > record.RECORD_SIZE_MIN], [])

    def test_few_requests(self) -> None:
        """A file needs a few requests, whatever the number of its records is."""
        server = self.served()
        rows(server.uri("bucket/backup"))
        files = len(list(self.log.directory.iterdir()))
        self.assertLess(len(server.ranges), 8 * files)

    def test_no_secret_is_shown(self) -> None:
        """Errors name the path without the key's secret."""
        server = self.served()
        uri = server.uri("bucket/backup")
        self.assertEqual(shown_path(uri), "s3://key:***@bucket/backup")
        errors = [self.assertRaises(StoreError, rows, server.uri("bucket/none"))]
        (self.log.directory / f"{FILE_SIZE:020d}").unlink()
        errors.append(self.assertRaises(LostFile, rows, uri))
        self.log.put(self.log.written[3][0] + 4, b"\0\0\0\0")
        errors.append(self.assertRaises(StoreError, rows, uri))
        server.failure = 403
        errors.append(self.assertRaises(StoreError, rows, uri))
        errors += [self.assertRaises(StoreError, rows, wrong) for wrong in (
            f"nowhere://key:{SECRET}@bucket/backup", f"s3://key:{SECRET} @bucket/backup")]
        for error in errors:
            self.assertIn("://key:***@", str(error))
            self.assertNotIn(SECRET, str(error))


class ReadTests(StoreCase):
    """One open file."""

    def test_ranges(self) -> None:
        """Any range has the bytes of the file, and is shorter at its end."""
        path = self.log.path(0)
        data = path.read_bytes()
        with object_store(self.root) as server:
            key = str(path.relative_to(self.root))
            for name in (str(path), server.uri(key)):
                file = open_log_file(name)
                for begin, size in ((0, 10), (5, 91), (39_990, 30), (40_000, 1), (50_000, 5),
                                    (100, 2 << 20), (3, 8)):
                    self.assertEqual(file.read(begin, size), data[begin:begin + size])
                file.close()
