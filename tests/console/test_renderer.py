"""Templates, and the texts of values."""

from __future__ import annotations

from math import inf, nan
from unittest.mock import patch

from jinja2 import FileSystemLoader
from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.page import Column, Page, Table
from twistmq.console.page_session import Unanswered
from twistmq.console.renderer import (
    Renderer,
    Visit,
    age_text,
    bytes_text,
    json_pairs,
    number_text,
    rate_text,
    sentence_text,
    static_files,
    time_text,
)

HOSTILE = "\"'><script>alert(1)</script>{{ 7*7 }}"


class TextTests(SynchronousTestCase):
    """Numbers and times."""

    def test_texts(self) -> None:
        """Each value has a short form, and an unknown one has a dash."""
        for text, expected in (
                (number_text(1234567), "1,234,567"), (number_text(None), "\u2013"),
                (rate_text(0.25), "0.2"), (rate_text(12.0), "12"), (rate_text(1234.5), "1,234"),
                (bytes_text(999), "999 B"), (bytes_text(4_200_000), "4.2 MB"),
                (age_text(1_000, 1.5), "now"), (age_text(1_000, 100.0), "1 min ago"),
                (age_text(1_000, 200_000.0), "2 d ago"), (age_text(0, 1.0), "\u2013"),
                (age_text(200_000, 1.0), "in the future"), (number_text(nan), "\u2013"),
                (rate_text(inf), "\u2013"), (bytes_text(-inf), "\u2013"),
                (time_text(2**66), str(2**66))):
            self.assertEqual(text, expected)

    def test_an_error_is_a_sentence(self) -> None:
        """The line of an error gets a capital letter and a period, but a name stays as it is."""
        for text, expected in (
                ("no broker has a group g", "No broker has a group g."),
                ("broker-a has no such queue", "broker-a has no such queue."),
                ("orders cannot be written to", "orders cannot be written to."),
                ("This token is not valid.", "This token is not valid."), ("", ""),
                ("no topic t See https://x.org/a for further details.", "No topic t."),
                ("No topic t. See https://x.org/a for further details.", "No topic t.")):
            self.assertEqual(sentence_text(text), expected)

    def test_members_of_an_object(self) -> None:
        """Members that are zero are left out, times are shown as such; other texts have none."""
        self.assertEqual(json_pairs('{"a":5,"b":0,"c":false,"d":"x","e":[1],"f":null}'),
                         [("a", "5"), ("d", "x"), ("e", "[1]")])
        [(name, text)] = json_pairs('{"lastPullTimestamp":1796049496573}')
        self.assertEqual((name, text), ("lastPullTimestamp", time_text(1796049496573)))
        for text in ("", "paid || x", "{broken", "[1]"):
            self.assertEqual(json_pairs(text), [])
        self.assertEqual(json_pairs(None), [])


class HtmlTests(SynchronousTestCase):
    """Pages that are made from values of strangers."""

    def html(self, page: Page, **values: str) -> str:
        """The HTML of a page under /console, of the second of two clusters."""
        renderer = Renderer("/console", ("one", "two"), static_files(), readonly=False)
        return renderer.as_html(page, Visit((), values, "two", "csrf", HOSTILE)).decode()

    def test_nothing_of_a_stranger_is_markup(self) -> None:
        """Names, reasons, parameters and messages are escaped wherever they are shown."""
        table = Table([Column("broker", kind) for kind in (
            "text", "code", "state", "list", "topic", "group", "client")],
            [(HOSTILE, HOSTILE, HOSTILE, [HOSTILE], HOSTILE, HOSTILE, HOSTILE)])
        page = Page("brokers", HOSTILE, {"brokers": table}, notes=[HOSTILE],
                    unanswered=[Unanswered(HOSTILE, HOSTILE)])
        text = self.html(page, q=HOSTILE)
        self.assertNotIn("<script>alert", text)
        self.assertNotIn("49", text.replace("{{ 7*7 }}", ""))
        self.assertGreaterEqual(text.count("&lt;script&gt;alert(1)"), 9)

    def test_links_keep_the_path_and_the_cluster(self) -> None:
        """Every address begins with the path of the proxy and names the cluster."""
        table = Table([Column("group", "group")], [("a/b?c",)])
        text = self.html(Page("brokers", "Brokers", {"brokers": table}))
        self.assertIn('href="/console/groups/a%2Fb%3Fc?at=two"', text)
        self.assertIn('src="/console/static/console.js?v=', text)

    def test_compiled_templates_are_not_read_again(self) -> None:
        """The first page after the start finds every template compiled."""
        renderer = Renderer("", ("one",), static_files(), readonly=False)
        renderer.compile_templates()
        with patch.object(FileSystemLoader, "get_source", side_effect=AssertionError):
            for is_part in (False, True):
                page = Page("brokers", "Brokers", {"brokers": Table([], [])})
                self.assertIn(b'id="live"', renderer.as_html(
                    page, Visit((), {}, "one", "csrf"), is_part=is_part))

    def test_figures_that_no_broker_has_told(self) -> None:
        """Such figures are shown as unknown, and the reason names the server once."""
        tables = {"groups": Table([], []), "queues": Table([], [])}
        facts = {"topic": "t", "kind": "user", "brokers": ["a", "b", "c"], "queues": 0,
                 "messages": 0, "in_per_s": 0.0, "stored_in_a_day": 0, "lag": 0}
        text = self.html(Page("topic", "t", tables, facts=facts, unanswered=[
            Unanswered("a (1.2.3.4:5)", "it refuses: 1.2.3.4:5 answered 16: no policy")]))
        for title in ("Messages", "In", "Lag", "Queues"):
            self.assertIn(f"<span>{title}</span><strong>\u2013</strong>", text)
        self.assertIn("</code>: it refuses: the answer was 16: no policy.</li>", text)
        self.assertIn("are removed from a, b and c.", text)
        text = self.html(Page("topic", "t", tables, facts=facts))
        self.assertIn("<span>Messages</span><strong>0</strong>", text)

    def test_settings_are_no_part_of_a_refresh(self) -> None:
        """An open "Settings" stays open at a refresh, and a single message has the singular."""
        tables = {name: Table([], [])
                  for name in ("queues", "clients", "subscriptions", "settings")}
        page = Page("group", "g", tables, facts={
            "group": "g", "topics": [], "lag": 1, "in_flight": 0, "clients": 0, "mode": ""})
        renderer = Renderer("", ("one",), static_files(), readonly=False)
        whole, part = (renderer.as_html(page, Visit((), {}, "one", "csrf"), is_part=is_part)
                       for is_part in (False, True))
        self.assertEqual([b'class="settings"' in each for each in (whole, part)], [True, False])
        self.assertIn(b"<small>message waits</small>", part)

    def test_no_broker_is_no_missing_page(self) -> None:
        """The error of a cluster without brokers has its own heading."""
        for reason, heading in (("the name server knows no broker", "No broker is registered"),
                                ("no topic t", "Not found")):
            text = self.html(Page("error", "404", facts={"text": reason}))
            self.assertIn(f"<h1>{heading}</h1>", text)

    def test_an_unpaired_surrogate(self) -> None:
        """Such a character in a name does not prevent the page."""
        self.assertIn("a?b", self.html(Page("error", "x", facts={"text": "a\ud800b"})))


class StaticTests(SynchronousTestCase):
    """Files for browsers."""

    def test_vendored_files_have_their_licence(self) -> None:
        """Each file of others has its licence beside it."""
        files = static_files()
        self.assertIn("htmx-LICENSE.txt", files)
        own = {"console.css", "console.js", "icon.svg"}
        for name in files.keys() - own:
            self.assertIn(f"{name.split('.')[0].split('-')[0]}-LICENSE.txt", files, msg=name)

    def test_the_digest_is_of_the_content(self) -> None:
        """Two files have different digests."""
        digests = [file.content_digest for file in static_files().values()]
        self.assertEqual(len(set(digests)), len(digests))
