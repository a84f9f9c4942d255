"""Logins, the throttle, and origins."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.access import (
    FAILURES_MAX,
    IDLE_S,
    LOGINS_MAX,
    Login,
    Logins,
    is_same_origin,
)


class LoginTests(SynchronousTestCase):
    """Logins in memory."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.logins = Logins("secret", self.clock.seconds)

    def test_a_login_lasts_while_it_is_used(self) -> None:
        """Each request begins the idle time again, and the login ends after it."""
        login = self.logins.enter("secret", "10.0.0.1")
        assert login is not None
        for _ in range(3):
            self.clock.advance(IDLE_S - 1)
            self.assertIs(self.logins.find(login.id), login)
        self.clock.advance(IDLE_S + 1)
        self.assertIsNone(self.logins.find(login.id))
        self.assertIsNone(self.logins.find(login.id))

    def test_a_wrong_token_is_counted_for_its_address(self) -> None:
        """The address may try again after a minute, and other addresses are not affected."""
        for _ in range(FAILURES_MAX):
            self.assertTrue(self.logins.throttle.allows("10.0.0.1"))
            self.assertIsNone(self.logins.enter("wrong", "10.0.0.1"))
        self.assertFalse(self.logins.throttle.allows("10.0.0.1"))
        self.assertTrue(self.logins.throttle.allows("10.0.0.2"))
        self.clock.advance(61)
        self.assertTrue(self.logins.throttle.allows("10.0.0.1"))

    def test_a_failure_that_is_taken_back_does_not_count(self) -> None:
        """An attempt counts from its begin, and no longer when it has succeeded."""
        throttle = self.logins.throttle
        for _ in range(FAILURES_MAX - 1):
            throttle.count("10.0.0.1")
        for _ in range(3):
            throttle.count("10.0.0.1")
            self.assertFalse(throttle.allows("10.0.0.1"))
            throttle.take_back("10.0.0.1")
            self.assertTrue(throttle.allows("10.0.0.1"))
        throttle.take_back("10.0.0.2")

    def test_the_end_of_each_login_is_reported(self) -> None:
        """A logout, idle time, one login too many and the end of the console end a login once."""
        ended: list[str] = []
        logins = Logins("", self.clock.seconds, lambda login: ended.append(login.account))
        kept = [logins.add(Login(name, 0.0)) for name in "abc"]
        logins.leave(kept[1])
        logins.leave(kept[1])
        self.assertEqual(ended, ["b"])
        self.clock.advance(IDLE_S / 2)
        logins.find(kept[2].id)
        self.clock.advance(IDLE_S / 2 + 1)
        logins.end_idle()
        self.assertEqual(ended, ["b", "a"])
        for _ in range(LOGINS_MAX):
            logins.add(Login("d", 0.0))
        self.assertEqual(ended, ["b", "a", "c"])
        logins.add(Login("e", 0.0, id=logins.add(Login("f", 0.0)).id))
        self.assertEqual(ended[3:], ["d", "f"])
        logins.end_all()
        self.assertEqual(len(ended), LOGINS_MAX + 5)

    def test_without_a_token_no_token_is_right(self) -> None:
        """No text is the token of a console with accounts, not even the empty one."""
        logins = Logins("", self.clock.seconds)
        for token in ("", "token"):
            self.assertIsNone(logins.enter(token, "10.0.0.1"))

    def test_the_id_of_a_program(self) -> None:
        """The same keys have the same id in one process alone, and the id does not show them."""
        text = "shop:secret-of-shop"
        self.assertEqual(self.logins.id_of(text), self.logins.id_of(text))
        self.assertNotEqual(self.logins.id_of(text), self.logins.id_of(text + "x"))
        self.assertNotEqual(self.logins.id_of(text), Logins("", self.clock.seconds).id_of(text))
        self.assertNotIn("secret", self.logins.id_of(text))

    def test_a_logout_ends_one_login(self) -> None:
        """Other browsers stay logged in."""
        first, second = self.logins.enter("secret", "a"), self.logins.enter("secret", "b")
        assert first is not None and second is not None
        self.logins.leave(first)
        self.assertIsNone(self.logins.find(first.id))
        self.assertIs(self.logins.find(second.id), second)

    def test_the_longest_idle_login_ends_before_one_too_many(self) -> None:
        """A login that is used stays."""
        first, second = self.logins.enter("secret", "a"), self.logins.enter("secret", "a")
        assert first is not None and second is not None
        self.logins.find(first.id)
        for _ in range(LOGINS_MAX - 1):
            self.logins.enter("secret", "a")
        self.assertIs(self.logins.find(first.id), first)
        self.assertIsNone(self.logins.find(second.id))

    def test_the_text_of_forms_belongs_to_one_login(self) -> None:
        """A text of another login, and a text that is not ASCII, are not accepted."""
        first, second = self.logins.enter("secret", "a"), self.logins.enter("secret", "a")
        assert first is not None and second is not None
        self.assertTrue(first.accepts(first.csrf))
        for text in (second.csrf, "", "\u20ac", first.csrf + "x"):
            self.assertFalse(first.accepts(text), msg=text)


class OriginTests(SynchronousTestCase):
    """Which pages may send a form."""

    def test_origins(self) -> None:
        """Browsers send one of the two headers or both; programs send none."""
        for origin, site, expected in (
                ("http://h:8082", "same-origin", True), ("http://h:8082", "", True),
                ("", "same-origin", True), ("", "none", True), ("", "", True),
                ("http://evil:8082", "", False), ("http://h", "", False), ("null", "", False),
                ("http://h:8082", "same-site", False), ("", "cross-site", False)):
            self.assertEqual(is_same_origin(origin, site, "h:8082"), expected, msg=(origin, site))
