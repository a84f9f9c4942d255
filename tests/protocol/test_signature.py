"""The signature, compared with Apache's AclClientRPCHook of 4.9.4 for the same requests."""

from __future__ import annotations

import base64
import hmac

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol import signature
from twistmq.protocol.signature import (
    Credentials,
    Signer,
    request_content,
    signature_of,
    signed_fields,
)

BODY = b"\x00\x01\xff"
SECRET = "12345678"
#: The last two names are in this order for Java and in the other by code point.
FIELDS = {"a": "имя ☃", "b": "имя свойства", "AccessKey": "rocketmq2", "Z": "last?",
          "_UNIQUE_KEY_QUERY": "true", "\U0001f600": "astral", "\uff5e": "bmp"}
SIGNATURE = "pysNwdXeFX0GFFrbyqD91JDfYZA="
#: MQVersion's V4_9_4 and V4_9_3.
VERSION, OLD_VERSION = 401, 399


class SignatureTests(SynchronousTestCase):
    """The signed content and the signature."""

    def test_values_in_the_order_of_the_names(self) -> None:
        """The values are in the order of the names, without separators, followed by the body."""
        values = ("rocketmq2", "last?", "true", "имя ☃", "имя свойства", "astral", "bmp")
        self.assertEqual(request_content(FIELDS, BODY, VERSION), "".join(values).encode() + BODY)

    def test_java_client(self) -> None:
        """The signature of the Java client is the same."""
        content = request_content(FIELDS, BODY, VERSION)
        self.assertEqual(signature_of(content, SECRET), SIGNATURE)
        self.assertTrue(Signer(SECRET).has_signed(
            {**FIELDS, "Signature": SIGNATURE}, BODY, VERSION))

    def test_java_client_without_fields(self) -> None:
        """The request has only the fields of the signature; the secret key is not ASCII."""
        fields = {"AccessKey": "rocketmq2", "Signature": "1MtOnyf6TBCXAfW6W0f7q47g2CU="}
        self.assertTrue(Signer("密钥密钥密钥密").has_signed(fields, b"", VERSION))

    def test_flag_of_old_clients(self) -> None:
        """Clients up to 4.9.3 set the flag of a query after they signed."""
        without = {name: text for name, text in FIELDS.items() if name != "_UNIQUE_KEY_QUERY"}
        content = request_content(without, BODY, OLD_VERSION)
        self.assertEqual(request_content(FIELDS, BODY, OLD_VERSION), content)
        self.assertNotEqual(request_content(FIELDS, BODY, VERSION), content)

    def test_names_kept(self) -> None:
        """The order of a few short names is remembered; that of many or long ones is not."""
        kept: dict[object, object] = {}
        self.patch(signature, "_orders", kept)
        for name, fields, size in (
            ("small", FIELDS, 1),
            ("small again", dict.fromkeys(FIELDS, "x"), 1),
            ("long", {"z" * 1024: "2", "a": "1"}, 1),
            ("many", {f"{number:02}": str(number % 10) for number in range(65)}, 1),
            ("long enough", {"z" * 1023: "2", "a": "1"}, 2),
            ("some", {f"{number:02}": str(number % 10) for number in range(64)}, 3),
        ):
            content = "".join(fields[key] for key in sorted(
                fields, key=lambda key: key.encode("utf-16-be")))
            self.assertEqual(request_content(fields, b"", VERSION), content.encode(), msg=name)
            self.assertEqual(len(kept), size, msg=name)
        for number in range(300):
            request_content({f"name{number}": "1"}, b"", VERSION)
        self.assertEqual(len(kept), 256)
        self.assertIn((("name299",), False), kept)

    def test_own_requests(self) -> None:
        """Our client's requests are accepted, with the security token in the signature."""
        credentials = Credentials("rocketmq2", SECRET, "for an hour")
        signed = signed_fields({"a": "имя", "b": "2"}, BODY, VERSION, credentials)
        self.assertEqual((signed["AccessKey"], signed["SecurityToken"]),
                         ("rocketmq2", "for an hour"))
        self.assertTrue(Signer(SECRET).has_signed(signed, BODY, VERSION))
        self.assertFalse(Signer(SECRET).has_signed(
            {**signed, "SecurityToken": "for ever"}, BODY, VERSION))

    def test_secrets_are_not_shown(self) -> None:
        """Credentials may be in a log line."""
        text = repr(Credentials("rocketmq2", SECRET, "for an hour"))
        self.assertIn("rocketmq2", text)
        self.assertNotIn(SECRET, text)
        self.assertNotIn("hour", text)

    def test_anything_changed(self) -> None:
        """A change of body, value, field, key or signature is refused."""
        signed = {**FIELDS, "Signature": SIGNATURE}
        wrong = {
            "body": (SECRET, signed, BODY + b"!"),
            "value": (SECRET, {**signed, "b": "Tema"}, BODY),
            "field": (SECRET, {**signed, "c": "more"}, BODY),
            "secret key": ("123456789", signed, BODY),
            "cut": (SECRET, {**signed, "Signature": SIGNATURE[:-1]}, BODY),
            "none": (SECRET, FIELDS, BODY),
            "not ASCII": (SECRET, {**signed, "Signature": "подпись\ud800"}, BODY),
        }
        for name, (secret, fields, body) in wrong.items():
            self.assertFalse(Signer(secret).has_signed(fields, body, VERSION), msg=name)

    def test_key_lengths(self) -> None:
        """Keys shorter than a block of SHA-1, as long and longer sign as Python's hmac does."""
        for length in (1, 7, 63, 64, 65, 200):
            key = "k" * length
            self.assertEqual(
                Signer(key).signature(BODY),
                base64.b64encode(hmac.digest(key.encode(), BODY, "sha1")), msg=str(length))

    def test_a_key_that_cannot_be_encoded_is_refused_and_not_shown(self) -> None:
        """Otherwise each request would fail, with the key in its error."""
        for keys in (("a\ud800", "s"), ("a", "geheim\ud800"), ("a", "s", "token\udfff")):
            error = self.assertRaises(ValueError, Credentials, *keys)
            self.assertIn("half a character", str(error))
            self.assertNotIn("geheim", str(error))

    def test_lone_surrogates(self) -> None:
        """JSON can contain half a character, which Java writes as a question mark."""
        self.assertEqual(request_content({"a\udc00": "x\ud800"}, b"", VERSION), b"x?")
