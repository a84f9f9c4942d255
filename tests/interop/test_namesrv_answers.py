"""Our name server answers as Apache's does: code, remark, fields and body."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from tests.interop.answers import ask_all
from tests.interop.clients import JavaTestCase
from tests.interop.namesrv_questions import namesrv_questions
from tests.interop.peer import Peer, wait_for_port
from tests.interop.servers import MAIN, free_port

#: What is answered otherwise on purpose, and why.
DIFFERENT: Final = {
    "PUT_KV_CONFIG without namespace": "the refusal names the field",
    "PUT_KV_CONFIG without key": "the refusal names the field",
    "PUT_KV_CONFIG without value": "nobody can read what is not there",
    "GET_ROUTEINFO_BY_TOPIC nothing": "the refusal names the field",
    "REGISTER_BROKER without brokerName": "a broker has a name",
    "REGISTER_BROKER without brokerAddr": "nobody could connect to it",
    "REGISTER_BROKER without clusterName": "a broker is of a cluster",
    "REGISTER_BROKER without haServerAddr": "slaves would be told nothing",
}


class NamesrvAnswersTests(JavaTestCase):
    """Questions about values, registrations, routes, lists and permissions."""

    def apache(self) -> int:
        """Start Apache's name server; its port."""
        peer = Peer(self.folder / "peer", namesrv_port=free_port(), heap="256m")
        self.addCleanup(peer.stop_one, "namesrv", kill=True)
        (peer.home / "conf").mkdir(parents=True)
        peer.start_namesrv()
        return peer.namesrv_port

    def ours(self) -> int:
        """Start our name server; returns its port."""
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "namesrv", f"listenPort={port}", "bindAddress=127.0.0.1",
             f"kvConfigPath={self.folder}/ours/kvConfig.json", f"log.dir={self.folder}/ours/logs"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        wait_for_port(port, process)
        return port

    def test_same_answers(self) -> None:
        """All answers are equal, except those with a known difference."""
        asked = list(namesrv_questions())
        self.assertEqual(len({question.name for question in asked}), len(asked))
        apache, ours = ask_all(self.apache(), asked), ask_all(self.ours(), asked)
        found = {name: (apache[name], ours[name]) for name in apache
                 if apache[name] != ours[name]}
        wrong = {name: pair for name, pair in found.items() if name not in DIFFERENT}
        self.assertEqual(wrong, {}, "\n".join(
            f"{name}\n  Apache {theirs}\n  ours   {mine}"
            for name, (theirs, mine) in wrong.items()))
        self.assertEqual(sorted(found), sorted(DIFFERENT))
