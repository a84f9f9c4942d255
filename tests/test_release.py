"""The release: the sdist and wheels run, the version is one, the changelog has fragments."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

from twisted.trial.unittest import SkipTest, SynchronousTestCase

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, **environment: str) -> str:
    """Run a command; :returns: the output."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False,
                            stdin=subprocess.DEVNULL, env={**os.environ, **environment})
    if result.returncode:
        raise AssertionError(f"{command}:\n{result.stdout}\n{result.stderr}")
    return result.stdout


def run_at_a_terminal(*command: str | Path, **environment: str) -> str:
    """Run a command at a terminal; :returns: the text of the terminal."""
    return run(sys.executable, "-c", "import os, pty, sys; sys.exit("
               "os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))", *command, **environment)


class DistributionTests(SynchronousTestCase):
    """The sdist, and the wheels that are made of it."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        source = self.folder / "source"
        shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(
            ".git", ".venv*", "build", "*.egg-info", "__pycache__", "_trial_temp*", ".*_cache"))
        run(sys.executable, "-m", "build", "--sdist", "--outdir", self.folder, source)
        [self.sdist] = self.folder.glob("*.tar.gz")

    def test_an_sdist_makes_both_wheels_and_each_runs_a_broker(self) -> None:
        """An sdist holds all of the package, and a compiled and a plain wheel of it run."""
        with tarfile.open(self.sdist) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        self.assertEqual({"LICENSE", "README.md", "CHANGELOG.md", "setup.py", "pyproject.toml",
                          "broker/compiled.py", "deploy/compose.yaml",
                          "deploy/monitoring/alerts.yaml",
                          "deploy/helm/twistmq/templates/brokers.yaml"} - names, set())
        compiled = shutil.which("cc") is not None
        hasty = self.hasty_compiler()
        kinds = [("compiled", "compiled: ")] if compiled else []
        for kind, expected in (*kinds, ("plain", "pure Python")):
            wheels = self.folder / kind
            shown = run_at_a_terminal(
                sys.executable, "-m", "pip", "wheel", "-q", "--no-deps",
                "--disable-pip-version-check", "-w", wheels, self.sdist,
                TWISTMQ_PURE="1" if kind == "plain" else "", CC=str(hasty))
            self.assertEqual("twistmq: compiling" in shown, kind == "compiled", shown)
            [wheel] = wheels.glob("*.whl")
            self.assertEqual("none-any" in wheel.name, kind == "plain")
            with ZipFile(wheel) as archive:
                self.assertTrue(any(name.endswith("licenses/LICENSE")
                                    for name in archive.namelist()))
            self.runs(wheel, expected)
        if compiled:
            calls = [line.split() for line in (self.folder / "calls").read_text().splitlines()]
            files = [words[words.index("-c") + 1] for words in calls if "-c" in words]
            # Several processors have work, and the headers are not read once for each module.
            self.assertEqual(len([each for each in files if "part_" in each]), 8, files)
            self.assertLess(len(files), 12)

    def hasty_compiler(self) -> Path:
        """A C compiler that does not optimize, since no speed is looked at here.

        It notes how it was called in the file ``calls``.
        """
        path = self.folder / "cc"
        path.write_text(f'#!/bin/sh\necho "$@" >>{self.folder}/calls\nexec cc "$@" -O0\n')
        path.chmod(0o755)
        return path

    def runs(self, wheel: Path, expected: str) -> None:
        """Install a wheel in its own environment, and run its programs."""
        environment = self.folder / f"environment-{wheel.parent.name}"
        run(sys.executable, "-m", "venv", environment)
        run(environment / "bin/pip", "install", "-q", "--disable-pip-version-check", wheel)
        twistmq = environment / "bin/twistmq"
        said = run(twistmq, "--version")
        self.assertIn(f"twistmq {version('twistmq')} ({expected}", said)
        process = subprocess.Popen(
            [twistmq, "up", "--data", self.folder / f"data-{wheel.parent.name}",
             "--namesrv-port", "0", "--broker-port", "0"], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            lines = iter(process.stdout)
            found = next((match for line in lines if (
                match := re.search(r"The broker\[.+, (\S+)\] boot success", line))), None)
            assert found is not None, "the broker does not start"
            table = run(twistmq, "admin", "brokerStatus", "-b", found[1])
            self.assertIn("brokerVersion", table)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(30), 0)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]


class VersionTests(SynchronousTestCase):
    """The version, whose source is setup.cfg."""

    def test_the_version_is_that_of_setup_cfg(self) -> None:
        """The installed package has the version of setup.cfg, and no module repeats it."""
        parser = configparser.ConfigParser()
        parser.read(ROOT / "setup.cfg")
        number = parser["metadata"]["version"]
        if version("twistmq") != number:
            raise SkipTest("another version is installed")
        written = [str(path.relative_to(ROOT)) for folder in (
            "protocol", "broker", "client", "tools", "plugins", "acl", "trace", "transaction",
            "spark_bridge", "integrations", "raft", "console")
            for path in (ROOT / folder).rglob("*.py") if f'"{number}"' in path.read_text()]
        self.assertEqual(written, [])

    def test_the_changelog_has_the_version(self) -> None:
        """Its newest section has the version, or is older than a version in development."""
        section = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$",
                            (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
        assert section is not None
        parser = configparser.ConfigParser()
        parser.read(ROOT / "setup.cfg")
        number, is_development, _ = parser["metadata"]["version"].partition(".dev")
        if is_development:
            self.assertLess(*([int(part) for part in each.split(".")]
                              for each in (section[1], number)))
        else:
            self.assertEqual(section[1], number)


class FragmentTests(SynchronousTestCase):
    """changes/: the parts of the next section of the changelog."""

    def test_each_fragment_has_a_type_of_the_changelog(self) -> None:
        """A file with another type would be missing in the changelog silently."""
        kinds = {row["directory"] for row in tomllib.loads(
            (ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]}
        wrong = [path.name for path in (ROOT / "changes").iterdir()
                 if path.name not in ("README.md", "template.md")
                 and (path.name.count(".") != 2 or path.name.split(".")[1] not in kinds
                      or path.suffix != ".md" or not path.read_text().strip())]
        self.assertEqual(wrong, [])

    def test_towncrier_makes_a_section_of_fragments(self) -> None:
        """Fragments of each type are lines under their heading."""
        folder = Path(self.mktemp()).absolute()
        shutil.copytree(ROOT / "changes", folder / "changes",
                        ignore=shutil.ignore_patterns("*.*.md"))
        for name in ("CHANGELOG.md", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        (folder / "changes/one.added.md").write_text("Brokers sing.\n")
        (folder / "changes/two.plugins.md").write_text("The hook `on_song`.\n")
        section = run(sys.executable, "-m", "towncrier", "build", "--draft", "--dir", folder,
                      "--version", "9.9", "--date", "2030-01-02")
        self.assertIn("## 9.9 (2030-01-02)", section)
        self.assertIn("### Added\n\n- Brokers sing.\n", section)
        self.assertIn("### For plugin authors\n\n- The hook `on_song`.\n", section)
