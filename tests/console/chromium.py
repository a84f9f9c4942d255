"""Chromium without a screen, for tests and for pictures."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import tempfile
from contextlib import ExitStack
from typing import Any

__all__ = ["missing_part", "start_driver"]


def missing_part() -> str:
    """Return what this machine does not have for a browser; an empty text: it has all parts."""
    # .ci/skips.py permits these texts.
    for name, text in (("chromium", "chromium is not installed"),
                       ("chromedriver", "chromedriver is not installed")):
        if shutil.which(name) is None:
            return text
    if importlib.util.find_spec("selenium") is None:
        return "the extra browser is not installed"
    return ""


def start_driver(stack: ExitStack) -> Any:
    """Start Chromium, which ends with the stack.

    :returns: selenium's driver.
    """
    webdriver: Any = importlib.import_module("selenium.webdriver")
    options = webdriver.ChromeOptions()
    profile = stack.enter_context(tempfile.TemporaryDirectory(
        prefix="twistmq-chromium-", ignore_cleanup_errors=True))
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                     f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    stack.callback(driver.quit)
    return driver
