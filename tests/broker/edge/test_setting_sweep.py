"""Every setting with many strange values, and a start after each accepted change."""

from __future__ import annotations

from unittest import mock

from tests.broker.edge.test_setting_changes import PLUGINS, TEXTS, UpCase
from twistmq.broker.config.properties_file import with_changes
from twistmq.broker.config.settings import Setting
from twistmq.broker.remoting.settings_update import change_settings
from twistmq.broker.testing.raw_client import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused


class SweepTests(UpCase):
    """The sweep over all settings and values."""

    def candidates(self, row: Setting) -> list[str]:
        """Values at the bounds of a setting, and beyond."""
        taken = self.held.getsockname()[1]
        if row.choices:
            return [*row.choices, "nope"]
        if row.kind == "flag":
            return ["true", "false", "maybe"]
        if row.kind in ("int", "float"):
            if row.most == 65_535:
                return ["x", "-1", "65536", str(taken), str(taken + 2), "0"]
            return ["x", "", str(row.least - 1), str(row.most + 1), str(row.least), str(row.most)]
        return list(TEXTS)

    def change(self, name: str, value: str) -> bool:
        """Change a setting as request 25 does; :returns: whether it was accepted."""
        settings = self.up.broker.settings
        body = with_changes("", {name: value}).encode()
        try:
            change_settings(settings, body, frozenset())
        except RequestRefused:
            return False
        return True

    def test_each_start(self) -> None:
        """In each round every setting gets its next value; then a start reads the file."""
        self.start()
        self.fill()
        rows = [row for row in self.up.broker.settings.rows if not row.is_fixed]
        rounds = [{row.name: values[number] for row in rows if row.name not in PLUGINS
                   and number < len(values := self.candidates(row))}
                  for number in range(len(TEXTS))]
        rounds += [{name: text} for name in PLUGINS for text in (*TEXTS, "acl", "timer,pop")]
        files: list[bytes] = []
        taken = 0

        def sweep() -> None:
            nonlocal taken
            for changes in rounds:
                for name, value in changes.items():
                    taken += self.change(name, value)
                if not files or self.file.read_bytes() != files[-1]:
                    files.append(self.file.read_bytes())

        with mock.patch("twistmq.broker.config.settings.os.fsync"):
            self.thread.call(sweep)
        self.assertGreater(taken, 400)
        self.assertGreater(len(files), 20)
        self.stop()
        for number, text in enumerate(files):
            self.file.write_bytes(text)
            try:
                self.start()
            except Exception as error:
                raise AssertionError(f"start {number} fails: {error}\n{text.decode()}") from error
            self.stop()

    def test_by_the_name_server(self) -> None:
        """After any change that 318 accepts, both servers can start again."""
        self.start()
        taken = set()
        with RawClient(f"127.0.0.1:{self.up.namesrv.port}") as client:
            for row in self.up.namesrv.settings.rows:
                for value in self.candidates(row):
                    body = with_changes("", {row.name: value}).encode()
                    reply = client.request(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)
                    taken |= {row.name} if reply.code == ResponseCode.SUCCESS else set()
        self.assertIn("log.levels", taken)
        self.stop()
        self.start()
