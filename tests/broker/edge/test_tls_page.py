"""The commands of broker/TLS.md make certificates, and its settings start servers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.interop.servers import Servers

PAGE = Path(__file__).resolve().parents[3] / "broker" / "TLS.md"


def block(language: str, part: str) -> str:
    """The page's block in a language that holds a text."""
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(),
                                  re.MULTILINE | re.DOTALL)
    [text] = [each for each in found if part in each]
    return text


class PageTests(SynchronousTestCase):
    """The whole page, from its first block to its client."""

    def test_as_written(self) -> None:
        """The blocks are run as written, except for the ports and the path of `twistmq`."""
        if shutil.which("openssl") is None:
            raise SkipTest("there is no openssl to make certificates with")
        with tempfile.TemporaryDirectory(prefix="twistmq-") as name:
            folder = Path(name)
            subprocess.run(["bash", "-e", "-c", block("sh", "openssl")], cwd=folder, check=True,
                           capture_output=True, timeout=60)
            (folder / "tls.conf").write_text(block("properties", "tls.server.mode"))
            self.assertEqual(block("sh", "twistmq up"), "twistmq up --data data -c tls.conf\n")
            servers = Servers(folder / "data", "-c", "tls.conf", folder=folder)
            self.addCleanup(servers.stop)
            servers.start()
            program = block("python", "Producer").replace("127.0.0.1:9876", servers.namesrv)
            done = subprocess.run([sys.executable, "-c", program], cwd=folder, timeout=60,
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"^SendResult\(.* code=0,")
            self.assertEqual(servers.stop(), 0)

    def test_each_setting_on_the_page_exists(self) -> None:
        """Each setting that the page names exists."""
        names = set(re.findall(r"\b((?:tls|proxy)\.[\w.]+\w)\b(?!\(|\.\*)", PAGE.read_text()))
        settings = (PAGE.parent / "SETTINGS.md").read_text()
        spark = {"tls.caFile", "tls.certFile", "tls.keyFile"}
        missing = [name for name in names - spark - {"tls.conf"} if f"| {name} |" not in settings]
        self.assertEqual(missing, [])
