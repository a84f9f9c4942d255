"""The looks of the pages as far as they can be checked without a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.console.case import ConsoleCase
from twistmq.console.renderer import static_files

#: The contrast of texts, and of the edges of fields, that WCAG 2.1 asks for on level AA.
TEXT_CONTRAST: Final = 4.5
EDGE_CONTRAST: Final = 3.0
#: Colours of texts, by the colours that are below them.
TEXTS: Final = {
    "bg": ("text", "soft", "accent"), "panel": ("text", "soft", "accent", "good", "bad"),
    "hover": ("text", "soft", "accent"), "badge": ("text", "soft"), "good-bg": ("good",),
    "warn-bg": ("warn",), "bad-bg": ("bad", "text", "soft"), "accent": ("panel",),
    "bad": ("panel",)}
_COLOUR: Final = re.compile(r"--([a-z-]+): (#[0-9a-f]{3,6});")
_VOID: Final = frozenset({"input", "meta", "link", "img", "br", "rect", "option"})


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour such as "#1f5fd6", from 0 to 1."""
    digits = colour.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(2 * each for each in digits)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4
                        for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def themes() -> list[dict[str, str]]:
    """Return the colours of the style sheet: light, dark by the system, dark by the button."""
    css = static_files()["console.css"].content.decode()
    return [dict(_COLOUR.findall(block)) for block in re.findall(
        r":root[^{]*\{([^}]*--bg[^}]*)\}", css)]


class ColourTests(SynchronousTestCase):
    """The colours of both themes."""

    def test_the_contrast_is_known(self) -> None:
        """Black on white has the largest contrast, and grey on itself the smallest one."""
        self.assertAlmostEqual(contrast("#000", "#ffffff"), 21.0)
        self.assertAlmostEqual(contrast("#777777", "#777"), 1.0)

    def test_texts_can_be_read(self) -> None:
        """Each colour of a text has enough contrast to each colour below it."""
        for colours in themes():
            for below, above in TEXTS.items():
                for name in above:
                    self.assertGreaterEqual(contrast(colours[name], colours[below]),
                                            TEXT_CONTRAST, msg=f"{name} on {below}")

    def test_fields_have_an_edge(self) -> None:
        """The edge of a field is seen on the page and in the field."""
        for colours in themes():
            for below in ("bg", "panel"):
                self.assertGreaterEqual(contrast(colours["edge"], colours[below]),
                                        EDGE_CONTRAST, msg=below)

    def test_both_dark_themes_are_the_same(self) -> None:
        """The button and the system choose the same colours, and each theme has all of them."""
        light, by_system, by_button = themes()
        self.assertEqual(by_system, by_button)
        self.assertEqual(light.keys(), by_system.keys())


class Outline(HTMLParser):
    """What the parts of a page are called.

    :ivar headings: the levels of the headings, in their order.
    :ivar nameless: the fields, buttons and regions without a name.
    :ivar bare_cells: the cells for which a card has no label.
    """

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.nameless: list[str] = []
        self.bare_cells = 0
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        is_labelled = bool(values.get("aria-label")) or any(
            name == "label" for name, _ in self._open)
        if (tag in ("input", "select", "textarea") and values.get("type") != "hidden"
                and not is_labelled) or ("tabindex" in values and tag == "div"
                                         and not values.get("aria-label")):
            self.nameless.append(self.get_starttag_text() or tag)
        if tag == "td" and not values.get("data-label"):
            self.bare_cells += 1
        if tag in ("button", "a", "summary", "th"):
            self._text = str(values.get("aria-label") or "")
        if tag not in _VOID:
            self._open.append((tag, values))

    def handle_data(self, data: str) -> None:
        self._text += data.strip()

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass
        if tag in ("button", "a", "summary", "th") and not self._text:
            self.nameless.append(f"<{tag}> without a text")


class OutlineTests(ConsoleCase):
    """The headings, and the names of what can be used."""

    def setUp(self) -> None:
        super().setUp()
        self.browser.log_in()
        self.topic("orders", 1)
        self.send("orders", "hello", "-k", "o-1")
        self.commit("billing", "orders", 0, 0)

    def test_each_page(self) -> None:
        """There is one heading of the page, no level is left out, and everything has a name."""
        for path in ("/", "/topics", "/topics/orders", "/groups", "/groups/billing",
                     "/groups/billing/reset?topic=orders&to=end", "/messages",
                     "/messages?topic=orders", "/messages?topic=orders&by=key&value=o-1",
                     "/tail?topic=orders", "/dead-letters", "/dead-letters/billing", "/traces",
                     "/traces/X", "/brokers", "/doctor", "/nothing"):
            outline = Outline()
            outline.feed(self.browser.get(path).text)
            self.assertEqual(outline.nameless, [], msg=path)
            self.assertEqual(outline.bare_cells, 0, msg=path)
            self.assertEqual((outline.headings[:1], outline.headings.count(1)), ([1], 1), msg=path)
            for level, following in zip(outline.headings, outline.headings[1:], strict=False):
                self.assertLessEqual(following, level + 1, msg=path)
        outline = Outline()
        outline.feed(type(self.browser)(self.browser.port).get("/login").text)
        self.assertEqual((outline.nameless, outline.headings), ([], [1]))

    def test_a_refused_change_looks_like_one(self) -> None:
        """The result of a change that was refused has another colour than a success."""
        self.browser.post("/topics/orders", {"act": "delete", "confirm": "order"})
        self.assertIn('class="message refused" role="status">Nothing was changed: type the name '
                      "of the topic to confirm that it is deleted.\n",
                      self.browser.get("/topics/orders").text)
        self.browser.post("/topics/orders", {"act": "send", "body": "x"})
        self.assertIn('class="message" role="status">Message ',
                      self.browser.get("/topics/orders").text)
