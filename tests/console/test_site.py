"""Requests of browsers and of strangers: logins, forms, origins, paths and sizes."""

from __future__ import annotations

import socket

from tests.console.case import TOKEN, Answer, Browser, ConsoleCase
from twistmq.console import shared_parts

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
HEADERS = ("content-security-policy", "x-content-type-options", "x-frame-options",
           "referrer-policy")


class LoginTests(ConsoleCase):
    """The way in."""

    def test_the_printed_address_logs_in(self) -> None:
        """The cookie is for this host alone, and scripts cannot read it."""
        answer = self.browser.get(f"/login?token={TOKEN}")
        self.assertEqual((answer.status, answer.headers["location"]), (303, "/"))
        cookie = answer.headers["set-cookie"].lower()
        self.assertIn("httponly", cookie)
        self.assertIn("samesite=strict", cookie)
        self.assertEqual(self.browser.get("/").status, 200)

    def test_without_a_cookie(self) -> None:
        """A browser is sent to the login and back to its page; a program gets 401."""
        answer = self.browser.get("/topics?q=x")
        self.assertEqual((answer.status, answer.headers["location"]),
                         (303, "/login?next=%2Ftopics%3Fq%3Dx"))
        self.assertIn("Token", self.browser.get(answer.headers["location"]).text)
        answer = self.browser.json("/topics")
        self.assertEqual(answer.status, 401)
        self.assertIn("Bearer", answer.text)
        answer = self.browser.request(
            "POST", "/login", FORM, f"token={TOKEN}&next=%2Ftopics%3Fq%3Dx")
        self.assertEqual(answer.headers["location"], "/topics?q=x")

    def test_a_login_does_not_lead_to_another_host(self) -> None:
        """Only paths of the console are accepted as the next page."""
        for path in ("//evil/", "https://evil/", "/\\evil", "evil", "/a\r\nb: c"):
            answer = self.browser.request("POST", "/login", FORM, "token=" + TOKEN + "&next="
                                          + "".join(f"%{ord(each):02x}" for each in path))
            self.assertEqual(answer.headers["location"], "/", msg=path)

    def test_a_program_sends_the_token(self) -> None:
        """It needs neither a cookie nor the text of forms."""
        program = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
        self.assertEqual(self.browser.request("GET", "/topics", program).status, 200)
        answer = self.browser.request("POST", "/topics", {**program, **FORM}, "topic=made")
        self.assertEqual(answer.status, 200)
        self.assertIn("Topic made has 8 queues", answer.text)
        program["Authorization"] = "Bearer wrong"
        self.assertEqual(self.browser.request("GET", "/topics", program).status, 401)

    def test_wrong_tokens_are_throttled(self) -> None:
        """After five failures the right token has to wait, in both ways of sending it."""
        for _ in range(5):
            answer = self.browser.request("POST", "/login", FORM, "token=wrong")
            self.assertEqual(answer.status, 403)
            self.assertIn("This token is not valid.", answer.text)
        self.assertEqual(self.browser.get(f"/login?token={TOKEN}").status, 429)
        self.assertEqual(self.browser.get("/", Authorization=f"Bearer {TOKEN}").status, 401)

    def test_a_logout(self) -> None:
        """The cookie is worth nothing afterwards."""
        self.browser.log_in()
        cookie = self.browser.cookie
        self.assertEqual(self.browser.post("/logout", {}).status, 303)
        self.browser.cookie = cookie
        self.assertEqual(self.browser.get("/").status, 303)


class FormTests(ConsoleCase):
    """Forms that other pages try to send."""

    def setUp(self) -> None:
        super().setUp()
        self.browser.log_in()

    def refused(self, **headers: str) -> None:
        """A form with the cookie and with these headers is refused, and nothing is done."""
        answer = self.browser.post("/topics", {"topic": "made"}, **headers)
        self.assertEqual(answer.status, 403)
        self.assertEqual(self.browser.json("/topics").rows["topics"], [])

    def test_another_origin(self) -> None:
        """A page of another host cannot send a form, even if it knew the text."""
        self.refused(Origin="http://evil")
        self.refused(**{"Sec-Fetch-Site": "cross-site"})
        self.refused(Origin="null")

    def test_without_the_text_of_the_login(self) -> None:
        """The cookie alone is not enough."""
        self.browser.csrf = ""
        self.refused()
        self.browser.csrf = "wrong"
        self.refused()

    def test_a_page_cannot_be_changed_by_get(self) -> None:
        """Fields in an address do nothing."""
        self.browser.get(f"/topics?topic=made&csrf={self.browser.csrf}")
        self.assertEqual(self.browser.json("/topics").rows["topics"], [])

    def test_a_reverse_proxy_names_the_host(self) -> None:
        """A browser knows the console by the name of the proxy."""
        answer = self.browser.post("/topics", {"topic": "made"}, Origin="https://ops.example",
                                   **{"X-Forwarded-Host": "ops.example"})
        self.assertEqual(answer.status, 303)

    def test_other_methods(self) -> None:
        """Only GET, HEAD and POST are answered."""
        for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
            answer = self.browser.request(method, "/topics")
            self.assertEqual((answer.status, answer.headers["allow"]), (405, "GET, HEAD, POST"))
        head = self.browser.request("HEAD", "/topics")
        self.assertEqual((head.status, head.text), (200, ""))


class PathTests(ConsoleCase):
    """Addresses."""

    def test_no_path_leads_out_of_the_static_files(self) -> None:
        """Only the names of files are served, without a login."""
        self.assertEqual(self.browser.get("/static/console.css").status, 200)
        for path in ("/static/../command.py", "/static/..%2fcommand.py", "/static/%2e%2e/site.py",
                     "/static//etc/passwd", "/static/", "/static", "/static/templates/base.html",
                     "/static/console.css/x", "/static/..\\site.py", "/static/\x00"):
            with socket.create_connection(("127.0.0.1", self.browser.port), 10) as connection:
                connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                head = connection.makefile("rb").readline()
            self.assertRegex(head, rb"^HTTP/1.[01] (404|400) ", msg=path)

    def test_every_answer_has_the_headers_of_safety(self) -> None:
        """The policy allows no script but that of the console, on errors too."""
        self.browser.log_in()
        for path in ("/", "/login", "/nothing", "/static/console.js", "/topics/nothing"):
            headers = self.browser.get(path).headers
            for name in HEADERS:
                self.assertIn(name, headers, msg=path)
            self.assertIn("default-src 'none'; script-src 'self'",
                          headers["content-security-policy"])

    def test_pages_have_no_inline_script_or_style(self) -> None:
        """The policy would block them."""
        self.browser.log_in()
        self.topic("orders")
        for path in ("/", "/topics", "/topics/orders", "/groups", "/brokers", "/nothing"):
            text = self.browser.get(path).text
            self.assertNotRegex(text, r"<script(?![^>]* src=)|<style| style=| on[a-z]+=", msg=path)

    def test_pages_are_not_stored(self) -> None:
        """A page of an operator does not stay in a cache."""
        self.browser.log_in()
        self.assertEqual(self.browser.get("/").headers["cache-control"], "no-store")

    def test_the_address_of_another_host(self) -> None:
        """A request that names a host, as for a proxy, does not get a page of the console."""
        self.browser.log_in()
        self.assertEqual(self.browser.request("GET", "http:/topics").status, 404)
        self.assertEqual(self.browser.request("GET", "http://evil/topics").status, 404)

    def test_an_unknown_cluster(self) -> None:
        """The answer is 404."""
        self.browser.log_in()
        self.assertEqual(self.browser.get("/topics?at=other").status, 404)

    def test_a_body_that_is_too_large(self) -> None:
        """The request is refused by its length, before its body is read."""
        with socket.create_connection(("127.0.0.1", self.browser.port), 10) as connection:
            connection.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\n"
                               b"Content-Length: 99999999\r\n\r\n")
            self.assertIn(b" 413 ", connection.makefile("rb").readline())

    def test_chunks_that_are_too_many(self) -> None:
        """A body without a length is refused when it has become too large."""
        with socket.create_connection(("127.0.0.1", self.browser.port), 10) as connection:
            connection.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\n"
                               b"Transfer-Encoding: chunked\r\n\r\n")
            chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
            try:
                for _ in range(40):
                    connection.sendall(chunk)
            except OSError:
                pass  # The console has closed the connection.
            self.assertIn(b" 413 ", connection.recv(100))
        self.assertEqual(self.browser.get("/login").status, 200)


class PartTests(ConsoleCase):
    """The live parts of pages, which the script refreshes."""

    LIVE = ("/", "/brokers", "/topics", "/topics/orders", "/groups", "/groups/billing",
            "/dead-letters")

    def setUp(self) -> None:
        super().setUp()
        self.patch(shared_parts, "SHARED_S", 600.0)
        self.browser.log_in()
        self.topic("orders")
        self.commit("billing", "orders", 0, 0)

    def part(self, path: str, browser: Browser | None = None, **headers: str) -> Answer:
        """Refresh a page."""
        return (browser or self.browser).get(path, **{"HX-Request": "true", **headers})

    def test_a_part_has_nothing_of_its_login(self) -> None:
        """It is the live part alone, as the whole page has it, without the text for forms."""
        for path in self.LIVE:
            answer = self.part(path)
            self.assertEqual(answer.status, 200, msg=answer.text)
            self.assertRegex(answer.text, r'^\s*<div id="live"', msg=path)
            self.assertNotIn("csrf", answer.text, msg=path)
            self.assertIn("no-store", answer.headers["cache-control"])
            self.assertIn('<div id="live"', self.browser.get(path).text)

    def test_browsers_share_a_part(self) -> None:
        """It is made once, until one of them changes something; whole pages are always made."""
        other = Browser(self.browser.port)
        other.log_in()
        before = self.part("/topics")
        self.topic("made-elsewhere")
        self.assertEqual(self.part("/topics", other).text, before.text)
        self.assertIn("made-elsewhere", self.browser.get("/topics").text)
        self.assertNotIn("made-elsewhere", self.part("/topics").text)
        self.assertNotEqual(self.part("/topics?q=else", other).text, before.text)
        self.assertEqual(other.post("/topics", {"topic": "made-here"}).status, 303)
        self.assertIn("made-here", self.part("/topics").text)

    def test_whole_pages(self) -> None:
        """The way back in a browser, other pages, and strangers do not get a part."""
        text = self.part("/topics", **{"HX-History-Restore-Request": "true"}).text
        self.assertIn("<!doctype html>", text)
        self.assertIn("<!doctype html>", self.part("/messages").text)
        self.assertEqual(self.part("/topics", Browser(self.browser.port)).status, 303)
        self.assertEqual(self.part("/topics/nothing").status, 404)


class ReadonlyTests(ConsoleCase):
    """A console that changes nothing."""

    readonly = True

    def test_every_change_is_refused(self) -> None:
        """Pages have no forms for changes, and a form that a client sends anyway is refused."""
        self.browser.log_in()
        self.topic("orders")
        self.assertNotIn("Create a topic", self.browser.get("/topics").text)
        self.assertNotIn("Delete this topic", self.browser.get("/topics/orders").text)
        answer = self.browser.post("/topics/orders", {"act": "delete", "confirm": "orders"})
        self.assertEqual(answer.status, 403)
        self.assertIn("read-only", answer.text)
        self.assertEqual(len(self.browser.json("/topics").rows["topics"]), 1)


class BaseTests(ConsoleCase):
    """A console under a path of a reverse proxy."""

    base = "/ops/mq"

    def test_every_address_has_the_path(self) -> None:
        """Links, forms, redirects and the cookie begin with it."""
        answer = self.browser.get(f"/login?token={TOKEN}")
        self.assertEqual(answer.headers["location"], "/ops/mq/")
        self.assertIn("path=/ops/mq", answer.headers["set-cookie"].lower())
        self.browser.log_in()
        text = self.browser.get("/topics").text
        self.assertNotRegex(text, r'(href|src|action|hx-get)="/(?!ops/mq)')
        answer = self.browser.post("/topics", {"topic": "made"})
        self.assertEqual(answer.headers["location"], "/ops/mq/topics")

    def test_a_proxy_may_remove_the_path(self) -> None:
        """The same page answers without it."""
        plain = Browser(self.browser.port)
        self.assertEqual(plain.get("/topics").headers["location"],
                         "/ops/mq/login?next=%2Ftopics")
