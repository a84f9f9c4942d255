"""The page: its examples run as they are printed, under the launcher of OpenTelemetry as well."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.integrations.opentelemetry.case import SpanCase

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = (ROOT / "integrations/opentelemetry/README.md").read_text()
#: The launcher, started in the same way as by its command.
LAUNCH: Final = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"


class ExampleTests(SpanCase):
    """The examples."""

    def example(self, name: str) -> str:
        """Return the code of an example, with the address of the test's broker."""
        code = re.search(rf"<!-- example: {name} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
        assert code is not None, name
        return code[1].replace("127.0.0.1:9876", self.server.namesrv_address)

    def launch(self, code: str) -> list[dict[str, Any]]:
        """Run a program under the launcher; :returns: the spans that it has printed."""
        program = Path(self.mktemp()).absolute().with_suffix(".py")  # type: ignore[no-untyped-call]
        program.write_text(code)
        run = subprocess.run(
            [sys.executable, "-c", LAUNCH, "--traces_exporter", "console", "--metrics_exporter",
             "none", "--logs_exporter", "none", sys.executable, str(program)],
            capture_output=True, text=True, timeout=60, env={**os.environ})
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("Traceback", run.stderr)
        decoder, text, spans = json.JSONDecoder(), run.stdout, []
        while (begin := text.find("{")) >= 0:
            span, end = decoder.raw_decode(text[begin:])
            spans.append(span)
            text = text[begin + end:]
        return spans

    def test_a_handler_is_in_the_trace_of_its_producer(self) -> None:
        """The launcher finds the instrumentor, and the program's own call has no further effect."""
        spans = {span["name"]: span for span in self.launch(self.example("handler.py"))}
        self.assertEqual(set(spans), {
            "order", "send orders", "receive orders", "process orders", "bill"})
        for child, parent in (("send orders", "order"), ("process orders", "send orders"),
                              ("bill", "process orders")):
            self.assertEqual(spans[child]["parent_id"], spans[parent]["context"]["span_id"])
            self.assertEqual(spans[child]["context"]["trace_id"],
                             spans["order"]["context"]["trace_id"])

    def test_a_loop_names_its_messages(self) -> None:
        """Without a configured SDK, nothing is recorded, and the program works."""
        run = subprocess.run([sys.executable, "-c", self.example("loop.py")], timeout=60,
                             capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stdout), (0, "b'seen'\n"), run.stderr)
