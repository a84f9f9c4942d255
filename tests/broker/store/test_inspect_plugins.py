"""Files of plugins in ``store check`` and ``dump``, and the faults of plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.store.test_inspect import COUNT, fill
from twistmq.broker.store.inspect.check import StoreCheck
from twistmq.broker.store.inspect.dump import Wanted
from twistmq.broker.store.inspect.json_files import check_json_file
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.plugin_files import PluginFiles, isolated_rows
from twistmq.broker.store.inspect.report import Report
from twistmq.protocol.errors import StoreDamaged


class Remembers:
    """A check that records its input; ``at`` says where it raises an error."""

    def __init__(self, store: StoreFiles, at: Mapping[str, BaseException]) -> None:
        self.places: list[int] = []
        self.finished = 0
        self.log_was_fixed = store._log is not None
        self._at = at
        self._reach("made")

    def record(self, place: int, message: Any, properties: Mapping[str, str]) -> None:
        assert properties == message.properties_map()
        self.places.append(place)
        if len(self.places) == 3:
            self._reach("record")

    def finish(self) -> None:
        self.finished += 1
        self._reach("finish")

    def _reach(self, where: str) -> None:
        if where in self._at:
            raise self._at[where]


class PluginFilesTests(SynchronousTestCase):
    """The files of plugins."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.root.mkdir(parents=True)
        self.successResultOf(fill(self.root).store.stop())

    def check(self, **at: BaseException) -> tuple[list[str], list[Remembers]]:
        """Check with two plugins, the first of which raises; lines, and the checks there were."""
        made: list[Remembers] = []

        def maker(at: Mapping[str, BaseException]) -> Callable[[StoreFiles, Report], Remembers]:
            def make(store: StoreFiles, report: Report) -> Remembers:
                made.append(Remembers(store, at))
                return made[-1]
            return make

        def rows(*_: object) -> Iterator[dict[str, Any]]:
            return iter(())

        lines: list[str] = []
        files = StoreFiles(self.root)
        self.addCleanup(files.close)
        StoreCheck(files, Report(self.root, lines.append, 99), None, [
            PluginFiles("first", maker(at), rows, str),
            PluginFiles("second", maker({}), rows, str)]).run()
        return lines, made

    def test_what_it_gets(self) -> None:
        """It is created before the end of the log is fixed, gets every record, and then the end."""
        lines, checks = self.check()
        self.assertEqual(lines, [])
        for each in checks:
            self.assertEqual((len(each.places), each.finished), (COUNT + 1, 1))
            self.assertEqual(each.places, sorted(set(each.places)))
            self.assertFalse(each.log_was_fixed)

    def test_a_plugin_that_raises_is_named_and_asked_no_more(self) -> None:
        """It is named and no longer called; the other checks and the store continue."""
        for where, error in (("made", ZeroDivisionError("no")), ("record", KeyError("x")),
                             ("finish", SystemExit(3))):
            lines, checks = self.check(**{where: error})
            self.assertEqual(lines, [".: expected first to be read to the end, found "
                                     f"{type(error).__name__}: {error}"], msg=where)
            self.assertEqual((len(checks[-1].places), checks[-1].finished), (COUNT + 1, 1))
            if where == "record":
                self.assertEqual((len(checks[0].places), checks[0].finished), (3, 0))

    def test_a_disk_error_ends_the_check(self) -> None:
        """An error of the disk is not the fault of a plugin, so the check ends."""
        for error in (OSError("broken"), StoreDamaged("torn")):
            self.assertRaises(type(error), self.check, record=error)

    def test_rows_before_a_plugins_exception_are_printed(self) -> None:
        """The rows before the error are printed; then the plugin is named."""
        def rows(store: StoreFiles, wanted: Wanted, report: Report) -> Iterator[dict[str, Any]]:
            yield {"topic": wanted.topic}
            raise ZeroDivisionError("no")

        lines: list[str] = []
        files = StoreFiles(self.root)
        self.addCleanup(files.close)
        report = Report(self.root, lines.append, 99)
        view = PluginFiles("mine", Remembers, rows, lambda row: f"<{row['topic']}>")  # type: ignore[arg-type]
        self.assertEqual(list(isolated_rows(view, files, Wanted(topic="T"), report)),
                         [({"topic": "T"}, "<T>")])
        self.assertEqual(lines, [".: expected mine to be read to the end, found "
                                 "ZeroDivisionError: no"])


class JsonFileTests(SynchronousTestCase):
    """The function check_json_file."""

    def test_whole_missing_empty_and_cut_files_are_told_apart(self) -> None:
        """Whole, gone, empty with and without a backup, cut."""
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        root.mkdir(parents=True)
        path = root / "a.json"
        for data, backup, line in (
            (b'{"a":1}', None, None), (None, None, None), (b"", b"{}", None),
            (b" ", None, "a.json: expected JSON, found nothing"),
            (b"", b"{", "a.json: expected JSON, found nothing"),
            (b'{"a":', b"{}", "a.json: expected JSON, found "),
        ):
            for name, content in ((path, data), (root / "a.json.bak", backup)):
                name.unlink(missing_ok=True)
                if content is not None:
                    name.write_bytes(content)
            lines: list[str] = []
            report = Report(root, lines.append, 9)
            check_json_file(path, report, running=False)
            self.assertEqual(len(lines), line is not None, msg=f"{data!r} {lines}")
            self.assertTrue(line is None or lines[0].startswith(line), msg=f"{data!r} {lines}")
            self.assertEqual(report.counts["configuration files"], 1)
