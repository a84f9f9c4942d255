"""Signals that arrive while a server is still importing its modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import take_default_signals
from twistmq.broker.edge import first_signals

#: A program that sends signals to itself at each import from that of one module on, and prints the
#: name of the first module.
PROGRAM = """
import os, sys
first, numbers, main, *sys.argv = sys.argv[1:]
seen = []
def at_import(event, arguments):
    if event != "import" or (not seen and first not in ("", arguments[0])):
        return
    if not seen:
        print(arguments[0], flush=True)
    seen.append(arguments[0])
    for number in numbers.split():
        os.kill(os.getpid(), int(number))
if main == "twistd":
    from twisted.scripts.twistd import run as main
else:
    from twistmq.broker.edge import first_signals
    from twistmq.tools import entry
    main = entry.main
sys.addaudithook(at_import)
sys.exit(main())
"""

#: A program that gets SIGQUIT many times, says so, and waits for the end of its input.
STACKS = """
import signal, sys
from twistmq.broker.edge import first_signals
first_signals.print_stacks_at_sigquit()
for _ in range(5 * first_signals.TEXTS_MAX):
    signal.raise_signal(signal.SIGQUIT)
print("goes on", flush=True)
sys.stdin.read()
"""


class FirstSignalsTests(SynchronousTestCase):
    """Tests with whole processes."""

    def program(self, first: str, numbers: list[signal.Signals], *arguments: str,
                **more: object) -> subprocess.Popen[str]:
        name, *settings = arguments
        more.setdefault("preexec_fn", take_default_signals)
        found = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, first,
             " ".join(str(int(number)) for number in numbers), name, name, *settings],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)  # type: ignore[call-overload]
        self.addCleanup(found.communicate)
        self.addCleanup(found.kill)
        return found  # type: ignore[no-any-return]

    def settings(self) -> list[str]:
        folder = self.mktemp()  # type: ignore[no-untyped-call]
        return ["listenPort=0", "bindAddress=127.0.0.1", f"log.dir={folder}",
                f"kvConfigPath={folder}/kv.json", f"configStorePath={folder}/ns.properties"]

    def test_signals_without_a_meaning(self) -> None:
        """They do not end a starting server, in whatever way it is run."""
        for first, arguments in (("", ("twistmq", "namesrv")),
                                 ("twistmq.broker.edge.services",
                                  ("twistd", "-n", "--pidfile=", "twistmq", "namesrv"))):
            numbers = [signal.SIGUSR1, signal.SIGUSR2]
            process = self.program(first, numbers, *arguments, *self.settings())
            assert process.stdout is not None
            out = ""
            while "boot success" not in out:
                line = process.stdout.readline()
                self.assertTrue(line, msg=f"{arguments}: {out}{process.poll()}")
                out += line
            process.send_signal(signal.SIGTERM)
            rest, err = process.communicate()
            # After its stop twistd ends by the signal that stopped it.
            status = -signal.SIGTERM if arguments[0] == "twistd" else 0
            self.assertEqual(process.returncode, status, msg=f"{arguments}: {out}{rest}{err}")

    def test_a_terminal_that_is_closed(self) -> None:
        """The hang-up ends a starting server as a stop does, and so do the other stop signals."""
        for first, arguments in (("", ("twistmq", "up", "--data", self.mktemp())),
                                 ("twistmq.broker.edge.services",
                                  ("twistd", "-n", "--pidfile=", "twistmq", "namesrv",
                                   *self.settings()))):
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                if number is not signal.SIGHUP and arguments[0] == "twistd":
                    continue  # these are twistd's
                process = self.program(first, [number], *arguments)
                out, err = process.communicate()
                self.assertEqual(process.returncode, 0, msg=f"{arguments} {number}: {out}{err}")
                self.assertNotIn("Traceback", out + err)

    def test_nohup(self) -> None:
        """A signal that was ignored before stays ignored."""
        process = self.program(
            "", [signal.SIGHUP], "twistmq", "namesrv", "-p",
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, msg=err)
        self.assertIn("listenPort=9876", out)

    def test_stacks_that_nobody_reads(self) -> None:
        """A full pipe blocks nothing: some stacks wait until it is read, and others are lost."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        filled = 0
        while True:
            try:
                filled += os.write(writer, b"x" * 4096)
            except BlockingIOError:
                break
        os.set_blocking(writer, True)
        process = subprocess.Popen([sys.executable, "-c", STACKS], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=writer, text=True)
        os.close(writer)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), "goes on\n")
        out = b""
        while out.count(b"Current thread 0x") < first_signals.TEXTS_MAX:
            data = os.read(reader, 65536)
            self.assertTrue(data, msg=out)
            out += data
        process.communicate("")
        self.assertEqual(process.returncode, 0)
        while data := os.read(reader, 65536):
            out += data
        self.assertEqual(out.count(b"Current thread 0x"), first_signals.TEXTS_MAX)
        self.assertEqual(out[:filled], b"x" * filled)
