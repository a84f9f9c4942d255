"""The modules that a client imports."""

from __future__ import annotations

import json
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

#: No part of a client loads one of them.
FOREIGN = ("twisted", "zope", "asyncio", "pluggy", "click", "lark", "yaml", "tabulate")


class ImportTests(SynchronousTestCase):
    """Each test uses its own process."""

    def modules(self, statement: str) -> list[str]:
        """Return the modules that a statement adds to a process."""
        code = (f"import sys; before = set(sys.modules); {statement}; import json; "
                "print(json.dumps(sorted(set(sys.modules) - before)))")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=True)
        found: list[str] = json.loads(done.stdout)
        return found

    def test_a_client_needs_msgspec_and_the_standard_library_only(self) -> None:
        """A worker of Spark, for example, has no reactor."""
        for name in ("Client", "Producer", "Consumer", "PullConsumer", "PopConsumer"):
            found = self.modules(f"from twistmq.client import {name}")
            self.assertIn("msgspec", found)
            packages = {module.partition(".")[0] for module in found}
            self.assertEqual(packages & set(FOREIGN), set(), msg=name)
            # msgspec loads typing_extensions where they are installed; the last is the library
            # of compiled modules.
            own = {"twistmq", "msgspec", "typing_extensions", "twistmq__mypyc"}
            self.assertEqual(packages - own - set(sys.stdlib_module_names), set(), msg=name)

    def test_the_client_for_asyncio_needs_asyncio_besides(self) -> None:
        """A program without Twisted can use it."""
        for name in ("Client", "Producer", "Consumer", "PullConsumer", "PopConsumer"):
            found = self.modules(f"from twistmq.client.aio import {name}")
            packages = {module.partition(".")[0] for module in found}
            self.assertIn("asyncio", packages)
            self.assertEqual(packages & set(FOREIGN), {"asyncio"}, msg=name)

    def test_the_client_for_twisted_imports_asyncio_nowhere(self) -> None:
        """Twisted itself imports it, so it is removed after Twisted is loaded."""
        code = ("import sys, twisted.internet.reactor, twisted.internet.threads\n"
                "for name in [*sys.modules]:\n"
                "    if name.partition('.')[0] == 'asyncio': sys.modules[name] = None\n"
                "import twistmq.client.tx as tx\n"
                "for name in tx.__all__: getattr(tx, name)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_is_not_used_is_not_loaded(self) -> None:
        """The bounds are numbers of modules: the package alone, a client, a producer."""
        for statement, most in (("import twistmq.client", 40),
                                ("from twistmq.client import Client", 168),
                                ("from twistmq.client import Producer", 196)):
            self.assertLessEqual(len(self.modules(statement)), most, msg=statement)
        found = self.modules("from twistmq.client import Producer")
        for module in ("twistmq.client.core.consumer.member", "twistmq.protocol.headers.table",
                       "pathlib", "random", "ssl", "hmac", "twistmq.protocol.signature"):
            self.assertNotIn(module, found)

    def test_a_client_is_within_its_bound_of_all_modules_and_of_memory(self) -> None:
        """The limits of the process are 200 modules and 22 MiB of memory.

        Debian's interpreter loads a ``sitecustomize``, which is not counted.
        """
        code = ("import sys\nfrom twistmq.client import Client\n"
                "with open('/proc/self/status') as status:\n"
                "    print(len(sys.modules.keys() - {'sitecustomize', 'usercustomize'}),\n"
                "          *[line.split()[1] for line in status\n"
                "          if line.startswith('VmRSS')])")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=True)
        modules, kib = map(int, done.stdout.split())
        self.assertLessEqual(modules, 200)
        self.assertLessEqual(kib, 22 << 10)


#: What Python has not on Windows, by module; modules that are not there at all have none.
NOT_ON_WINDOWS = {
    "os": ("fork", "getuid", "geteuid", "register_at_fork", "uname", "kill", "setsid", "pipe2"),
    "signal": ("SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGUSR1", "SIGUSR2", "pthread_sigmask",
               "setitimer", "alarm"),
    "socket": ("AF_UNIX", "SO_REUSEPORT", "MSG_DONTWAIT"),
    "fcntl": (), "resource": (), "termios": (), "pwd": (), "grp": (), "pty": (), "tty": (),
}


class WindowsTests(SynchronousTestCase):
    """As far as this can be tested without Windows."""

    def test_every_name_is_imported_without_what_windows_lacks(self) -> None:
        """The names of the blocking style and of asyncio; click needs a module of Windows."""
        # What the standard library itself imports on this platform is loaded first.
        code = f"""
import asyncio, concurrent.futures, logging, multiprocessing.util, ssl, sys
for module, names in {NOT_ON_WINDOWS!r}.items():
    if not names:
        sys.modules[module] = None
        continue
    found = __import__(module)
    for name in names:
        if hasattr(found, name):
            delattr(found, name)
sys.platform = "win32"
import twistmq.client
for name in twistmq.client.__all__:
    getattr(twistmq.client, name)
import twistmq.client.aio, twistmq.client.testing
from twistmq.client.testing import RecordingProducer
producer = RecordingProducer()
producer.send("orders", b"paid")
assert len(producer.messages) == 1
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
