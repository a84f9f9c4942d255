"""Signing, held to what Apache's AclClientRPCHook of 4.9.4 makes of the same requests."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.signature import is_signed_by, request_content, signature_of

BODY = b"\x00\x01\xff"
SECRET = "12345678"
#: The last two names are in this order for Java and in the other by code point.
FIELDS = {"a": "имя ☃", "b": "имя свойства", "AccessKey": "rocketmq2", "Z": "last?",
          "_UNIQUE_KEY_QUERY": "true", "\U0001f600": "astral", "\uff5e": "bmp"}
SIGNATURE = "pysNwdXeFX0GFFrbyqD91JDfYZA="
#: MQVersion's V4_9_4 and V4_9_3.
VERSION, OLD_VERSION = 401, 399


class SignatureTests(SynchronousTestCase):
    """Content and signature."""

    def test_content(self) -> None:
        """Values in the order of the names, nothing between them, the body behind."""
        values = ("rocketmq2", "last?", "true", "имя ☃", "имя свойства", "astral", "bmp")
        self.assertEqual(request_content(FIELDS, BODY, VERSION), "".join(values).encode() + BODY)

    def test_java_client(self) -> None:
        """The Java client makes the same signature."""
        content = request_content(FIELDS, BODY, VERSION)
        self.assertEqual(signature_of(content, SECRET), SIGNATURE)
        self.assertTrue(is_signed_by(SECRET, {**FIELDS, "Signature": SIGNATURE}, BODY, VERSION))

    def test_java_client_without_fields(self) -> None:
        """A request that has only what the signing adds; a secret key outside ASCII."""
        fields = {"AccessKey": "rocketmq2", "Signature": "1MtOnyf6TBCXAfW6W0f7q47g2CU="}
        self.assertTrue(is_signed_by("密钥密钥密钥密", fields, b"", VERSION))

    def test_flag_of_old_clients(self) -> None:
        """Clients up to 4.9.3 set the flag of a query after they signed."""
        without = {name: text for name, text in FIELDS.items() if name != "_UNIQUE_KEY_QUERY"}
        content = request_content(without, BODY, OLD_VERSION)
        self.assertEqual(request_content(FIELDS, BODY, OLD_VERSION), content)
        self.assertNotEqual(request_content(FIELDS, BODY, VERSION), content)

    def test_anything_changed(self) -> None:
        """Another body, value, field, key or signature is no signature."""
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
            self.assertFalse(is_signed_by(secret, fields, body, VERSION), msg=name)

    def test_lone_surrogates(self) -> None:
        """JSON can say half a character; Java writes a question mark for it."""
        self.assertEqual(request_content({"a\udc00": "x\ud800"}, b"", VERSION), b"x?")
