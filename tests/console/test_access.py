"""Logins, the throttle, and origins."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.access import FAILURES_MAX, IDLE_S, LOGINS_MAX, Logins, is_same_origin


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
