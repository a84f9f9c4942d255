"""Users and policies as Apache's broker writes and reads them."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.bodies import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    decode_infos,
    encode_infos,
)
from twistmq.protocol.errors import WireError

#: As a broker of 5.3.3 answers 3005 and 3010.
USERS = (b'[{"password":"p","userStatus":"enable","userType":"Super","username":"root"},'
         b'{"password":"q","userStatus":"disable","userType":"Normal","username":"a"}]')
ACLS = (b'[{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow",'
        b'"resource":"Topic:t*","sourceIps":["10.0.0.0/8"]}],"policyType":"Custom"}],'
        b'"subject":"User:a"}]')


class InfosTests(SynchronousTestCase):
    """The functions encode_infos and decode_infos."""

    def test_as_java_writes_them(self) -> None:
        """Keys are quoted and in alphabetical order; None is left out."""
        users = [UserInfo("root", "p", "Super", "enable"), UserInfo("a", "q", "Normal", "disable")]
        acls = [AclInfo("User:a", [PolicyInfo("Custom", [PolicyEntryInfo(
            "Topic:t*", ["Pub", "Sub"], ["10.0.0.0/8"], "Allow")])])]
        self.assertEqual(encode_infos(users), USERS)
        self.assertEqual(encode_infos(acls), ACLS)
        self.assertEqual(decode_infos(UserInfo, USERS), users)
        self.assertEqual(decode_infos(AclInfo, ACLS), acls)
        self.assertEqual(encode_infos([UserInfo("a")]), b'[{"username":"a"}]')

    def test_no_body_is_an_empty_list(self) -> None:
        """A broker without users sends no body."""
        self.assertEqual(decode_infos(UserInfo, b""), [])

    def test_what_cannot_be_read(self) -> None:
        """The error names the list, and does not have its content."""
        for body in (b"[", b"{}", b'["sesame"]', b"[{\xff", b'[{"username":[]}]'):
            error = self.assertRaises(WireError, decode_infos, UserInfo, body)
            self.assertIn("list of UserInfo", str(error))
            self.assertNotIn("sesame", str(error))

    def test_no_text_shows_a_password(self) -> None:
        """Logs contain the repr of objects."""
        self.assertNotIn("sesame", repr(UserInfo("a", "sesame")))
