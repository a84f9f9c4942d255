"""Take a picture of every page of the console, at two widths and in both themes.

    python -m tests.long.console_pictures FOLDER [--only WORD ...]

The pictures show the cluster that ``tests/long/console_sights.py`` starts. The program needs
Chromium, chromedriver and the extra ``browser``. Each picture is a file NAME-WIDTH-THEME.png and
shows a whole page. With --only, the program loads only the pages whose names contain one of the
words. It prints each page that is wider than its screen, and each error that the browser reports,
and ends with status 1 if there is one.
"""

from __future__ import annotations

import argparse
import base64
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from tests.console.case import TOKEN
from tests.console.chromium import start_driver
from tests.long.console_sights import (
    LONG_GROUP,
    LONG_KEY,
    LONG_TOPIC,
    MOVING_GROUP,
    ROOT,
    SMALL,
    Sights,
)

WIDTHS: Final = (1280, 400)
HEIGHT: Final = 900
THEMES: Final = ("light", "dark")
#: A picture ends at this height, pixels.
HEIGHT_MAX: Final = 2600
PATIENCE_S: Final = 10.0


@dataclass(frozen=True)
class Sight:
    """One page to take pictures of.

    :param before: is called with the camera once the page is loaded.
    :param is_once: whether the page is loaded once for all pictures, because a further load has
        another result.
    """

    name: str
    address: str
    before: Callable[[Camera], None] | None = None
    is_once: bool = False


class Camera:
    """A browser that takes pictures."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver = driver
        self._folder = folder
        self.faults: list[str] = []

    def run(self, script: str, *arguments: Any) -> Any:
        """Return the value of a script in the page."""
        return self.driver.execute_script(script, *arguments)

    def open_all(self) -> None:
        """Open what can be opened in the page."""
        self.run("for (const each of document.querySelectorAll('main details')) each.open = true")

    def click(self, selector: str) -> None:
        """Click on an element, and wait for the page that follows."""
        page = self.driver.find_element("css selector", "html")
        self.run("document.querySelector(arguments[0]).click()", selector)
        self.settle(lambda: self._is_gone(page))

    def _is_gone(self, element: Any) -> bool:
        try:
            element.is_enabled()
        except Exception:  # selenium has several errors for it
            return bool(self.run("return document.readyState === 'complete'"))
        return False

    def fill(self, **values: str) -> None:
        """Fill the fields of a form by their names."""
        for name, value in values.items():
            self.run("document.querySelector(`main [name=${arguments[0]}]`).value = arguments[1]",
                     name, value)

    def focus(self, selector: str) -> None:
        """Give the focus to an element as the keyboard does."""
        self.run("document.querySelector(arguments[0]).focus({focusVisible: true})", selector)

    @staticmethod
    def settle(condition: Callable[[], object]) -> None:
        """Wait for a condition, and go on in any case."""
        end_s = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < end_s:
            time.sleep(0.03)

    def _set(self, width: int, theme: str, height: int = HEIGHT) -> None:
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": theme}]})

    def take(self, sight: Sight) -> None:
        """Take all pictures of a page."""
        for width in WIDTHS:
            for theme in THEMES:
                self._set(width, theme)
                if theme == THEMES[0] and (width == WIDTHS[0] or not sight.is_once):
                    self.driver.get(sight.address)
                    if sight.before is not None:
                        sight.before(self)
                self._shoot(f"{sight.name}-{width}-{theme}", width)
        self.faults += [f"{sight.name}: {entry['message']}" for entry in
                        self.driver.get_log("browser") if entry["level"] == "SEVERE"
                        and "the server responded with a status of" not in entry["message"]]

    def _shoot(self, name: str, width: int) -> None:
        self.driver.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()))")
        whole, height = self.run("const all = document.documentElement;"
                                 "return [all.scrollWidth, all.scrollHeight]")
        if whole > width:
            self.faults.append(f"{name}: {whole} pixels wide")
        image = self.driver.execute_cdp_cmd("Page.captureScreenshot", {
            "format": "png", "captureBeyondViewport": True, "clip": {
                "x": 0, "y": 0, "width": width, "height": min(height, HEIGHT_MAX), "scale": 1}})
        (self._folder / f"{name}.png").write_bytes(base64.b64decode(image["data"]))


def pages(sights: Sights) -> Iterator[Sight]:
    """Return all pages, in an order in which none spoils another."""
    main, empty, two, guarded = sights.main, sights.empty, sights.two, sights.guarded

    def found(topic: str, by: str, value: str) -> str:
        return f"{main}/messages?{urlencode({'topic': topic, 'by': by, 'value': value})}"

    yield Sight("login", f"{main}/login")
    yield Sight("login-wrong", f"{main}/login?token=wrong")
    yield Sight("login-account", f"{guarded}/login?next=/topics")
    for console in (main, empty, two, sights.failing):
        yield Sight("", f"{console}/login?token={TOKEN}")
    yield Sight("error-500", f"{sights.failing}/topics")
    yield Sight("overview", f"{main}/", lambda camera: time.sleep(5))
    yield Sight("topics", f"{main}/topics")
    yield Sight("topics-create", f"{main}/topics?q=o", Camera.open_all)
    yield Sight("topics-system", f"{main}/topics?kind=system")
    yield Sight("topics-none", f"{main}/topics?q=nothing-like-this")
    yield Sight("topic", f"{main}/topics/orders", Camera.open_all)
    yield Sight("topic-empty", f"{main}/topics/newsletter")
    yield Sight("topic-long", f"{main}/topics/{LONG_TOPIC}")
    yield Sight("groups", f"{main}/groups")
    yield Sight("groups-none", f"{main}/groups?q=nothing-like-this")
    yield Sight("group", f"{main}/groups/billing")
    yield Sight("group-moving", f"{main}/groups/{MOVING_GROUP}", lambda camera: time.sleep(5))
    yield Sight("topic-moving", f"{main}/topics/clicks")
    yield Sight("group-settings", f"{main}/groups/{LONG_GROUP}", Camera.open_all)
    yield Sight("group-idle", f"{main}/groups/nightly-report")
    [client] = sights.browser.json("/groups/billing").rows["clients"]
    yield Sight("client", f"{main}/groups/billing/clients/{quote(client['client'], safe='')}")
    reset = f"{main}/groups/analytics/reset"
    yield Sight("reset-start", reset)
    yield Sight("reset-start-none", f"{main}/groups/nightly-report/reset")
    yield Sight("reset-topic", f"{reset}?topic=orders")
    yield Sight("reset-again", f"{reset}?topic=sensor-readings&to=begin")
    yield Sight("reset-skips", f"{reset}?topic=sensor-readings&to=end")
    yield Sight("reset-same", f"{main}/groups/audit/reset?topic=orders&to=end")
    yield Sight("reset-read-only", reset.replace(main, two) + "?topic=orders&to=begin")
    yield Sight("reset-done", f"{reset}?topic=orders&to=begin",
                lambda camera: camera.click("form[data-once] button"), is_once=True)
    yield Sight("messages-start", f"{main}/messages")
    yield Sight("messages", f"{main}/messages?topic=orders")
    yield Sight("messages-kinds", f"{main}/messages?topic=payments&tag=" + quote(
        "msgpack || binary || html || long || empty || text"))
    yield Sight("messages-stopped", f"{main}/messages?topic=sensor-readings&text=nothing")
    yield Sight("messages-none", f"{main}/messages?topic=newsletter")
    yield Sight("message-json", found("orders", "id", sights.ids["retried"]))
    for name in ("msgpack", "binary", "html", "long", "empty"):
        yield Sight(f"message-{name}", found("payments", "id", sights.ids[name]))
    yield Sight("message-key", found(LONG_TOPIC, "key", LONG_KEY))
    yield Sight("tail-start", f"{main}/tail")
    yield Sight("tail", f"{main}/tail?topic=orders", lambda camera: camera.settle(
        lambda: "live" in camera.run("return document.querySelector('[role=status]').textContent")))
    yield Sight("tail-none", f"{main}/tail?topic=newsletter")
    yield Sight("dead-letters", f"{main}/dead-letters")
    yield Sight("dead-letters-none", f"{empty}/dead-letters")
    letters = f"{main}/dead-letters/fraud-check"

    def select(camera: Camera) -> None:
        camera.run("for (const box of [...document.querySelectorAll('td input')].slice(0, 3)) "
                   "box.click()")

    def preview(camera: Camera) -> None:
        select(camera)
        camera.click("[data-selection] button")

    def resend(camera: Camera) -> None:
        preview(camera)
        camera.click("form[data-once] button")

    yield Sight("letters", letters)
    yield Sight("letters-selected", letters, select)
    yield Sight("letters-older", f"{letters}?count=4")
    yield Sight("letters-none", f"{main}/dead-letters/audit")
    yield Sight("resend", letters, preview)
    yield Sight("resend-topic", letters, lambda camera: (
        preview(camera), camera.click("[name=to][value=topic]"))[0])  # type: ignore[func-returns-value]
    yield Sight("resend-nothing", f"{letters}/resend")
    yield Sight("resend-done", letters, resend, is_once=True)
    yield Sight("traces", f"{main}/traces")
    yield Sight("trace", f"{main}/traces/{sights.ids['retried']}?of=orders")
    yield Sight("trace-none", f"{main}/traces/{'0' * 32}")
    yield Sight("brokers", f"{main}/brokers")
    yield Sight("doctor", f"{main}/doctor")
    yield Sight("doctor-elsewhere", f"{empty}/doctor")
    yield Sight("error-400", f"{main}/messages?topic=orders&by=time&value=yesterday")
    yield Sight("error-404", f"{main}/nothing-here")
    yield Sight("error-404-topic", f"{main}/topics/no-such-topic")
    yield Sight("error-403", f"{main}/brokers", lambda camera: (
        camera.run("document.querySelector('[name=csrf]').value = 'x'"),
        camera.click("header form button"))[0], is_once=True)
    yield Sight("change-refused", f"{main}/topics/newsletter", lambda camera: (
        camera.open_all(), camera.fill(confirm="newsletters"),
        camera.click("details.danger button"))[0], is_once=True)  # type: ignore[func-returns-value]
    yield Sight("sent", f"{main}/topics/newsletter", lambda camera: (
        camera.open_all(), camera.fill(body="The news of the day", keys="n-1"),
        camera.click("details.form button"))[0], is_once=True)  # type: ignore[func-returns-value]
    for name, path in (("overview", "/"), ("topics", "/topics"), ("groups", "/groups"),
                       ("brokers", "/brokers")):
        yield Sight(f"empty-{name}", f"{empty}{path}")
    yield Sight("clusters", f"{two}/topics", lambda camera: camera.run(
        "document.querySelector('.menu').open = true"))
    yield Sight("letters-read-only", f"{two}/dead-letters/fraud-check")
    for name, selector in (("link", "td a"), ("field", "main input"), ("button", "main button"),
                           ("table", ".scroll"), ("skip", ".skip"), ("menu", "nav a:nth-child(3)")):
        yield Sight(f"focus-{name}", f"{main}/topics",
                    lambda camera, selector=selector: camera.focus(selector))  # type: ignore[misc]

    def log_in(keys: tuple[str, str]) -> Callable[[Camera], None]:
        def enter(camera: Camera) -> None:
            camera.fill(access_key=keys[0], secret_key=keys[1])
            camera.click("main button")
        return enter

    yield Sight("login-account-wrong", f"{guarded}/login", log_in((SMALL[0], "wrong")),
                is_once=True)
    yield Sight("account-overview", f"{guarded}/login", log_in(SMALL), is_once=True)
    yield Sight("account-topics", f"{guarded}/topics")
    yield Sight("account-groups", f"{guarded}/groups")
    yield Sight("account-denied", f"{guarded}/topics/salaries")
    yield Sight("account-root", f"{guarded}/login", log_in(ROOT), is_once=True)

    sights.second.send_signal(signal.SIGSTOP)
    for name, path in (("overview", "/"), ("topics", "/topics"), ("groups", "/groups"),
                       ("brokers", "/brokers"), ("topic", "/topics/orders"),
                       ("group", "/groups/billing"), ("messages", "/messages?topic=orders"),
                       ("letters", "/dead-letters/fraud-check")):
        yield Sight(f"hung-{name}", f"{main}{path}", is_once=True)
    sights.second.send_signal(signal.SIGCONT)
    yield Sight("overview-later", f"{main}/")
    yield Sight("group-later", f"{main}/groups/{MOVING_GROUP}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        begin = time.monotonic()
        camera = Camera(start_driver(stack), options.folder)
        sights = Sights(Path(name), stack)
        sights.wait_for_trace()
        print(f"the cluster is ready after {time.monotonic() - begin:.0f} s", flush=True)
        for sight in pages(sights):
            if not sight.name:
                camera.driver.get(sight.address)
            elif not options.only or any(word in sight.name for word in options.only):
                camera.take(sight)
        print(f"all pictures are taken after {time.monotonic() - begin:.0f} s", flush=True)
    print("\n".join(camera.faults) or "no page is too wide, and the browser reported nothing")
    return 1 if camera.faults else 0


if __name__ == "__main__":
    sys.exit(main())
