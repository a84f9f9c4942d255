"""Visitors with accounts: their keys, what brokers allow them, and where the keys are not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final
from unittest import mock

from twisted.logger import globalLogPublisher

from tests.console.case import TOKEN, Answer, Browser, ConsoleCase
from tests.interop.servers import wait_until
from twistmq.console import shared_parts
from twistmq.console.access import FAILURES_MAX, IDLE_S
from twistmq.protocol.signature import Credentials

FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
ROOT: Final = ("root", "secret-of-root")
SHOP: Final = ("shop", "secret-of-shop")
USERS: Final = {"authenticationEnabled": "true", "authorizationEnabled": "true",
                "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]})}
#: Accounts of ACL 1.0; the last one needs no secret key from the address of the tests.
ACCOUNTS: Final = """\
accounts:
- {accessKey: root-key, secretKey: secret-of-root, admin: true}
- accessKey: shop-key
  secretKey: secret-of-shop
  topicPerms: [orders=SUB]
  groupPerms: [TOOLS_CONSUMER=SUB]
- {accessKey: white-key, secretKey: secret-of-white, whiteRemoteAddress: 127.0.0.1, admin: true}
"""
INVALID: Final = "These keys are not valid."


class AccountCase(ConsoleCase):
    """A broker with access control, and a console whose visitors log in with their keys."""

    accounts = True
    root = ROOT
    shop = SHOP

    def setUp(self) -> None:
        self.enterContext(mock.patch.dict(os.environ, {
            "ROCKETMQ_ACCESS_KEY": self.root[0], "ROCKETMQ_SECRET_KEY": self.root[1]}))
        self.lines: list[str] = []
        globalLogPublisher.addObserver(self.note)
        self.addCleanup(globalLogPublisher.removeObserver, self.note)
        super().setUp()
        self.answers: list[Answer] = []
        for topic in ("orders", "salaries"):
            self.topic(topic)
            self.send(topic, f"body of {topic}")

    def note(self, event: Any) -> None:
        self.lines.append(str(event))

    def log_in(self, keys: tuple[str, str], browser: Browser | None = None) -> Answer:
        """Send the form with keys; the browser then knows the text for forms."""
        browser = browser or self.browser
        answer = browser.post("/login", {"access_key": keys[0], "secret_key": keys[1]})
        self.answers.append(answer)
        if answer.status == 303:
            browser.csrf = browser.get("/").text.partition(
                'name="csrf" value="')[2].partition('"')[0]
        return answer

    def get(self, path: str) -> Answer:
        """Load a page, which is searched for secrets at the end."""
        self.answers += [answer := self.browser.get(path), self.browser.json(path)]
        return answer

    def assert_no_secret(self) -> None:
        """Neither answers with their headers nor logs have a secret key."""
        shown = "\n".join(f"{each.headers} {each.text}" for each in self.answers)
        for secret in (self.root[1], self.shop[1], "wrong-secret"):
            self.assertNotIn(secret, shown)
            self.assertNotIn(secret, "\n".join(self.lines))
        self.assertTrue(self.answers)

    def check_small_account(self) -> None:
        """An account with permission to read one topic sees only this topic and changes nothing."""
        answer = self.log_in(self.shop)
        self.assertEqual((answer.status, answer.headers["location"]), (303, "/"))
        self.assertIn(self.shop[0], self.get("/").text)
        names = [row["topic"] for row in self.browser.json("/topics").rows["topics"]]
        self.assertEqual(names, ["orders", "salaries"])
        self.assertIn("This page is incomplete", self.get("/topics").text)
        self.assertIn("refuses a request of this account", self.get("/groups").text)
        self.assertEqual(self.browser.json("/brokers").rows["brokers"][0]["role"], "denied")
        self.assertIn("body of orders", self.get("/messages?topic=orders").text)
        at_offset = "/messages?topic=salaries&by=offset&broker=broker-a&queue=0&value=0"
        for path in ("/messages?topic=salaries", "/topics/salaries", at_offset):
            text = self.get(path).text
            self.assertIn("refuses a request of this account", text)
            self.assertNotIn("body of salaries", text)
        self.assertEqual(self.browser.json("/messages?topic=salaries").rows["messages"], [])
        for path, form in (("/topics/orders", {"act": "delete", "confirm": "orders"}),
                           ("/topics/orders", {"act": "send", "body": "forged"}),
                           ("/topics", {"topic": "made"})):
            self.answers.append(self.browser.post(path, form))
            self.assertIn(f"The account {self.shop[0]} may not do this: ", self.get(path).text)
        self.assertEqual(self.browser.get("/topics/made").status, 404)
        self.log_in(self.root)
        self.assertEqual(
            [row["topic"] for row in self.browser.json("/topics").rows["topics"]], names)
        self.assertIn("body of salaries", self.get("/messages?topic=salaries").text)
        [row] = self.browser.json("/messages?topic=orders").rows["messages"]
        self.assertEqual(row["body"], "body of orders")
        self.assertEqual(self.browser.post("/topics", {"topic": "made"}).status, 303)
        self.assertIn("Topic made has 8 queues", self.get("/topics").text)
        # The second login of the browser has ended the first one.
        [login] = self.resource.logins._logins.values()
        self.assertEqual(login.account, self.root[0])


class UserTests(AccountCase):
    """Users of ACL 2.0."""

    settings = {**ConsoleCase.settings, **USERS}  # noqa: RUF012

    def setUp(self) -> None:
        super().setUp()
        self.rows("createUser", "-b", self.broker, "-u", SHOP[0], "-p", SHOP[1])
        self.rows("createAcl", "-b", self.broker, "-s", f"User:{SHOP[0]}", "-d", "Allow",
                  "-r", "Topic:orders,Group:TOOLS_CONSUMER", "-a", "Sub,Get")

    def test_a_small_account(self) -> None:
        """The brokers decide about its rights, and each page names the denied requests."""
        self.check_small_account()
        self.assert_no_secret()

    def test_accounts_share_no_part_of_a_page(self) -> None:
        """A refresh shows what the account may see, even right after an administrator's refresh."""
        self.patch(shared_parts, "SHARED_S", 600.0)
        refresh = {"HX-Request": "true"}
        self.log_in(ROOT)
        small = Browser(self.browser.port)
        self.log_in(SHOP, small)
        for path in ("/groups", "/topics/salaries"):
            self.assertNotIn("refuses a request", self.browser.get(path, **refresh).text)
            self.assertIn("refuses a request", small.get(path, **refresh).text)

    def test_wrong_keys_are_refused_alike_and_throttled(self) -> None:
        """A wrong secret, an unknown key and a disabled user have one text; the sixth try waits."""
        self.rows("createUser", "-b", self.broker, "-u", "idle", "-p", "secret-of-idle")
        self.rows("updateUser", "-b", self.broker, "-u", "idle", "-s", "disable")
        attempts = ((SHOP[0], "wrong-secret"), ("nobody", "wrong-secret"), ("root", SHOP[1]),
                    ("idle", "secret-of-idle"), ("", ""), (SHOP[0], ""), ("x" * 2000, "y"))
        for keys in attempts:
            answer = self.log_in(keys)
            is_complete = keys[0] and keys[1] and len(keys[0]) < 1000
            self.assertEqual(answer.status, 403 if is_complete else 400, msg=keys)
            self.assertEqual(INVALID in answer.text, bool(is_complete), msg=keys)
            self.assertNotIn("set-cookie", answer.headers)
        self.log_in((SHOP[0], "wrong-secret"))
        self.assertEqual(self.log_in(SHOP).status, 429)
        program = {"Authorization": "Bearer shop:secret-of-shop", "Accept": "application/json"}
        self.assertEqual(self.browser.request("GET", "/topics", program).status, 429)
        self.assert_no_secret()

    def test_right_keys_are_not_throttled(self) -> None:
        """A login that succeeds does not count as a failure."""
        for _ in range(FAILURES_MAX + 1):
            self.assertEqual(self.log_in(SHOP).status, 303)

    def test_keys_in_an_address_do_nothing(self) -> None:
        """Addresses are kept in histories, so only the form may have keys; no token is valid."""
        for query in ("access_key=shop&secret_key=secret-of-shop", f"token={TOKEN}"):
            answer = self.browser.get(f"/login?{query}")
            self.assertEqual((answer.status, "set-cookie" in answer.headers), (200, False))
        self.assertIn("Secret key", answer.text)
        self.assertEqual(self.browser.post("/login", {"token": TOKEN}).status, 400)
        self.assertEqual(self.browser.get("/", Authorization=f"Bearer {TOKEN}").status, 400)

    def test_a_program_sends_its_keys(self) -> None:
        """They are checked once; each request is still decided by the brokers."""
        program = {"Authorization": "Bearer shop:secret-of-shop", "Accept": "application/json"}
        answer = self.browser.request("GET", "/messages?topic=orders", program)
        self.assertEqual(answer.rows["messages"][0]["body"], "body of orders")
        count = sum("login of" in line for line in self.lines)
        answer = self.browser.request("POST", "/topics", {**program, **FORM}, "topic=made")
        self.assertEqual(answer.status, 403)
        self.assertIn("may not do this", json.loads(answer.text)["facts"]["text"])
        self.assertEqual(sum("login of" in line for line in self.lines), count)
        program["Authorization"] += "-wrong"
        self.assertEqual(self.browser.request("GET", "/topics", program).status, 403)

    def test_keys_end_with_the_login(self) -> None:
        """After a logout, and after idle time, no session with the keys is open."""
        resource, kept = self.resource, []

        def add(login: Any) -> Any:
            kept.append(login.sessions)
            return type(resource.logins).add(resource.logins, login)

        with mock.patch.object(resource.logins, "add", add):
            for _ in range(2):
                self.log_in(SHOP)
                cookie = self.browser.cookie
                if len(kept) == 1:
                    self.browser.post("/logout", {})
                else:
                    with mock.patch.object(resource.logins, "_seconds",
                                           lambda: self.thread.reactor.seconds() + IDLE_S + 1):
                        self.thread.call(resource.logins.end_idle)
                self.browser.cookie = cookie
                self.assertEqual(self.browser.get("/topics").status, 303)
        self.assertEqual(len(kept), 2)
        wait_until("closed sessions", lambda: all(each._is_closed for each in kept))

    def test_a_user_who_is_deleted_sees_nothing_from_the_next_page_on(self) -> None:
        """The login lasts, but the brokers refuse each of its requests."""
        self.log_in(SHOP)
        self.rows("deleteUser", "-b", self.broker, "-u", SHOP[0])
        self.assertEqual(self.browser.json("/messages?topic=orders").rows["messages"], [])
        self.assertIn("refuses a request of this account",
                      self.browser.get("/messages?topic=orders").text)

    def test_credentials_have_no_secret_in_their_text(self) -> None:
        """Logins and sessions may appear in a traceback."""
        self.log_in(SHOP)
        login = next(iter(self.resource.logins._logins.values()))
        self.assertNotIn("secret-of", f"{login!r} {login.sessions!r} {Credentials(*SHOP)!r}")


class OldAccountTests(AccountCase):
    """Accounts of ACL 1.0."""

    root = ("root-key", "secret-of-root")
    shop = ("shop-key", "secret-of-shop")

    def setUp(self) -> None:
        home = Path(self.mktemp()).absolute()
        (home / "conf").mkdir(parents=True)
        (home / "conf/plain_acl.yml").write_text(ACCOUNTS)
        self.settings = {**ConsoleCase.settings, "aclEnable": "true", "rocketmqHome": str(home)}
        super().setUp()

    def test_a_small_account(self) -> None:
        """The brokers decide about its rights, and each page names the denied requests."""
        self.check_small_account()
        self.assert_no_secret()

    def test_an_account_without_a_check_cannot_log_in(self) -> None:
        """From a white address, the broker would accept any secret key of this account."""
        self.assertEqual(self.log_in((self.shop[0], "wrong-secret")).status, 403)
        for secret in ("secret-of-white", "wrong-secret"):
            answer = self.log_in(("white-key", secret))
            self.assertEqual(answer.status, 502)
            self.assertIn("does not check the keys of this account", answer.text)
            self.assertNotIn("set-cookie", answer.headers)


class OpenBrokerTests(ConsoleCase):
    """A broker without access control."""

    accounts = True

    def test_nobody_can_log_in(self) -> None:
        """A broker that accepts every key must not be open to every visitor."""
        answer = self.browser.post("/login", {"access_key": "any", "secret_key": "key"})
        self.assertEqual(answer.status, 502)
        self.assertIn("does not check the keys of this account", answer.text)
        self.assertEqual(self.browser.get("/topics").status, 303)
