"""The console in Chromium: a walk with the keyboard alone, both widths, and no script at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from twisted.trial.unittest import SkipTest

from tests.console.case import TOKEN, Browser, ConsoleCase
from tests.console.chromium import missing_part, start_driver

__all__ = ["start_chromium"]

_PATIENCE_S: Final = 30.0
#: The steps by the tab key after which an element counts as out of reach.
_STEPS_MAX: Final = 120
_TAB, _ENTER = "\ue004", "\ue007"
WIDTHS: Final = (1280, 400)


def start_chromium(case: ConsoleCase) -> Any:
    """Start Chromium without a screen until the test ends.

    :raises SkipTest: when this machine has no Chromium, or this environment no selenium.
    """
    reason = missing_part()
    if reason:
        raise SkipTest(reason)
    stack = ExitStack()
    case.addCleanup(stack.close)
    return start_driver(stack)


class BrowserTests(ConsoleCase):
    """A person in front of a browser."""

    def setUp(self) -> None:
        super().setUp()
        self.driver = start_chromium(self)
        self.root = f"http://127.0.0.1:{self.browser.port}"
        self.open(f"/login?token={TOKEN}")

    def open(self, path: str) -> None:
        """Load a page."""
        self.driver.get(self.root + path)

    def run_script(self, script: str, *arguments: Any) -> Any:
        """Return the value of a script in the page."""
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        """Press keys in the element that has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def move_to(self, selector: str, text: str = "") -> None:
        """Press the tab key until an element with a text has the focus."""
        for _ in range(_STEPS_MAX):
            self.press(_TAB)
            if self.run_script(
                    "const at = document.activeElement;"
                    "return at.matches(arguments[0]) && at.textContent.includes(arguments[1])",
                    selector, text):
                return
        self.fail(f"the tab key does not reach {selector} {text}")

    def type_into(self, selector: str, text: str) -> None:
        """Move to a field, and fill it."""
        self.move_to(selector)
        self.press(text)

    def wait_for(self, what: str, condition: Callable[[], object]) -> None:
        """Wait for a condition about the page, which may be loading."""
        end_s = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > end_s:
                self.fail(f"{what}: the page has {self.text()[:2000]}")
            time.sleep(0.02)

    def text(self) -> str:
        """The text of the page."""
        text: str = self.run_script("return document.body ? document.body.innerText : ''")
        return text

    def expect(self, text: str) -> None:
        """Wait for a text."""
        self.wait_for(text, lambda: text in self.text())

    def test_a_walk_with_the_keyboard(self) -> None:
        """Create a topic, send, find the message, follow the tail, delete; nothing is reported."""
        self.move_to("nav a", "Topics")
        self.press(_ENTER)
        self.expect("Create a topic")
        self.move_to("summary", "Create a topic")
        self.press(_ENTER)
        self.type_into("details input[name=topic]", "orders")
        self.move_to("button", "Create")
        self.press(_ENTER)
        self.expect("Topic orders has 8 queues on each of 1 broker.")
        self.move_to("td a", "orders")
        self.press(_ENTER)
        self.expect("Send a message")
        self.move_to("summary", "Send a message")
        self.press(_ENTER)
        self.type_into("textarea", "paid <b>twice</b>")
        self.type_into("input[name=keys]", "o-17")
        self.move_to("button", "Send")
        self.press(_ENTER)
        self.expect("SEND_OK")
        self.find_by_key()
        self.follow_tail()
        self.delete()
        self.assertEqual([entry for entry in self.driver.get_log("browser")
                          if entry["level"] == "SEVERE"], [])

    def find_by_key(self) -> None:
        """Search for a key with the form, and open the message."""
        self.move_to("a", "Newest messages")
        self.press(_ENTER)
        self.expect("paid <b>twice</b>")
        self.move_to("select[name=by]")
        self.press("key")
        self.type_into("input[name=value]", "o-17")
        self.press(_ENTER)
        self.wait_for("the search", lambda: "by=key" in self.driver.current_url)
        self.move_to("td a code, td a")
        self.press(_ENTER)
        self.expect("Download the body")

    def follow_tail(self) -> None:
        """Open the tail: a new message is shown without a key, and a pause stops the looks."""
        self.open("/tail?topic=orders")
        self.expect("live")
        with self.running.client() as client:
            client.send("orders", b"fresh")
            self.expect("fresh")
            self.move_to("button", "Pause")
            self.press(_ENTER)
            self.expect("paused")
            client.send("orders", b"later")
            mark = self.run_script("return document.querySelector('[data-tail]').dataset.tail")
            self.press(_ENTER)
            self.expect("later")
        self.assertNotEqual(mark, self.run_script(
            "return document.querySelector('[data-tail]').dataset.tail"))

    def delete(self) -> None:
        """See the chart of the topic, which has been shown before, and delete the topic."""
        self.open("/topics/orders")
        self.wait_for("the chart", lambda: self.run_script(
            "return document.querySelectorAll('.plot canvas').length == 2"))
        self.move_to("summary", "Delete this topic")
        self.press(_ENTER)
        self.type_into("input[name=confirm]", "orders")
        self.press(_ENTER)
        self.expect("Topic orders is deleted from 1 broker.")

    def test_a_group_is_moved_and_moved_back(self) -> None:
        """The keyboard reaches the preview, the reset, and the way back on the next page."""
        self.topic("orders", 1)
        for body in ("a", "b", "c"):
            self.send("orders", body)
        self.commit("billing", "orders", 0, 3)
        self.open("/groups/billing")
        self.move_to("a", "Reset offsets")
        self.press(_ENTER)
        self.move_to("select[name=to]")
        self.press("the first message")
        self.press(_ENTER)
        self.move_to("button", "Preview")
        self.press(_ENTER)
        self.expect("Consumed again")
        self.assertEqual(self.committed(), 3)
        self.move_to("button", "Move the group")
        self.press(_ENTER)
        self.expect("queue 0 of broker-a: from 3 to 0")
        self.assertEqual(self.committed(), 0)
        self.move_to("button", "Go back")
        self.press(_ENTER)
        self.expect("queue 0 of broker-a: from 0 to 3")
        self.assertEqual(self.committed(), 3)
        self.assertEqual([entry for entry in self.driver.get_log("browser")
                          if entry["level"] == "SEVERE"], [])

    def committed(self) -> object:
        """The offset of the group in the only queue of the topic."""
        program = Browser(self.browser.port)
        program.log_in()
        [row] = program.json("/groups/billing").rows["queues"]
        return row["committed_offset"]

    def test_the_focus(self) -> None:
        """The tab key goes through a page in the order of its parts, and each one shows it."""
        self.topic("orders")
        self.commit("billing", "orders", 0, 0)
        # A refresh replaces the parts.
        self.run_script("localStorage.setItem('refresh', 'off')")
        for path in ("/", "/topics", "/groups/billing", "/messages?topic=orders"):
            self.open(path)
            self.run_script("window.parts = [...document.querySelectorAll('*')]; window.at = -1;")
            count = self.run_script(
                "return [...document.querySelectorAll("
                "    'a, button, input, select, summary, [tabindex=\"0\"]')]"
                ".filter((each) => each.checkVisibility()).length")
            for _ in range(count):
                self.press(_TAB)
                before, at, outline = self.run_script(
                    "const each = document.activeElement, style = getComputedStyle(each);"
                    "const before = window.at; window.at = window.parts.indexOf(each);"
                    "return [before, window.at, [style.outlineStyle, style.outlineWidth]]")
                self.assertLess(before, at, msg=path)
                self.assertEqual(outline, ["solid", "2px"], msg=path)

    def test_widths_themes_and_no_script(self) -> None:
        """No page is wider than the screen, and lists can be read without scripts."""
        self.topic("a-topic-with-a-long-name-" + "x" * 60)
        self.topic("orders")
        self.send("orders", "word " * 200)
        self.commit("billing", "orders", 0, 0)
        pages = ("/", "/topics", "/topics/orders", "/groups", "/groups/billing",
                 "/groups/billing/reset?topic=orders&to=begin", "/brokers", "/messages",
                 "/messages?topic=orders", "/tail?topic=orders", "/dead-letters",
                 "/dead-letters/billing", "/traces", "/traces/X", "/doctor", "/nothing",
                 f"/topics/{'n' * 100}", f"/login?{'x' * 100}")
        for width in WIDTHS:
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
                "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
            for path in pages:
                self.open(path)
                self.assertLessEqual(self.run_script(
                    "return document.documentElement.scrollWidth"), width, msg=path)
        # What the heads of a table do can also be done on a narrow screen, and be seen there.
        self.open("/topics?sort=-lag")
        self.assertTrue(all(each.is_displayed() and each.rect["x"] >= 0
                            for each in self.driver.find_elements("css selector", "th a")))
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        self.open("/topics")
        self.assertIn("orders", self.driver.find_element("css selector", "table").text)
        self.assertEqual([entry for entry in self.driver.get_log("browser")
                          if entry["level"] == "SEVERE"
                          and "a status of 404" not in entry["message"]], [])
