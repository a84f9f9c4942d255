"""Users from requests and files."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.errors import AclError
from twistmq.acl.users import NAME_LENGTH_MAX, User, changed_user, new_user
from twistmq.protocol.bodies import UserInfo


class NewUserTests(SynchronousTestCase):
    """new_user."""

    def test_what_is_not_given(self) -> None:
        """A user is normal and enabled, even if a word is unknown to Apache."""
        self.assertEqual(new_user("a", UserInfo(password="p")), User("a", "p", False, True))
        self.assertEqual(new_user("a", UserInfo("x", "p", "King", "asleep")),
                         User("a", "p", False, True))

    def test_words_in_any_case(self) -> None:
        """The answer has one form."""
        user = new_user("a", UserInfo(None, "p", "SUPER", "Disable"))
        self.assertEqual(user, User("a", "p", True, False))
        self.assertEqual(user.info(), UserInfo("a", "p", "Super", "disable"))

    def test_what_is_refused(self) -> None:
        """Blank and long names and passwords are refused, and no text shows a password."""
        long = "s" * (NAME_LENGTH_MAX + 1)
        for text, name, password in [
            ("username can not be blank", " ", "p"),
            ("password can not be blank", "a", None),
            ("password can not be blank", "a", "  "),
            ("username has 256 characters, the limit is 255", long, "p"),
            ("password has 256 characters, the limit is 255", "a", long),
            ("password contains half a character of UTF-16", "a", "s\ud800"),
        ]:
            error = self.assertRaises(AclError, new_user, name, UserInfo(password=password))
            self.assertEqual(str(error), text)

    def test_no_text_shows_the_password(self) -> None:
        """Neither the text of the user nor the text of the request contains it."""
        user = new_user("a", UserInfo("a", "sesame"))
        self.assertNotIn("sesame", repr(user) + repr(user.info()))


class ChangedUserTests(SynchronousTestCase):
    """changed_user."""

    def test_only_what_is_given_changes(self) -> None:
        """A blank password counts as missing."""
        user = User("a", "p", True, False)
        for info, changed in [
            (UserInfo(), user),
            (UserInfo("b", " ", "", "?"), user),
            (UserInfo(password="q"), User("a", "q", True, False)),
            (UserInfo(user_type="normal"), User("a", "p", False, False)),
            (UserInfo(user_status="enable"), User("a", "p", True, True)),
        ]:
            self.assertEqual(changed_user(user, info), changed, msg=repr(info))

    def test_a_long_password_is_refused(self) -> None:
        """The limit is the same as for a new user."""
        self.assertRaises(AclError, changed_user, User("a", "p"), UserInfo(password="s" * 256))
