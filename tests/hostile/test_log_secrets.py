"""The log of attacked servers at the lowest level has no secret and no body."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.hostile.wire import Closed, RawConnection, json_frame, raw_frame
from tests.interop.servers import Servers
from twistmq.acl.requests import CreateAccessConfigRequestHeader
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.client.blocking.connection import Connection
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.namesrv import PutKVConfigRequestHeader
from twistmq.protocol.signature import Credentials, signature_of

#: What must be nowhere in a log; each is found as it is, and in base64.
SECRET_KEY: Final = "SECRETKEYOFADMIN7X"
OTHER_KEY: Final = "SECRETKEYOFNOBODY7X"
NEW_KEY: Final = "SECRETKEYTHATISNEW7X"
BODY: Final = "BODYTHATISPRIVATE7X"
VALUE: Final = "VALUETHATISPRIVATE7X"
ACCESS: Final = "admin-access"
_ACCOUNTS: Final = f"""\
accounts:
- accessKey: {ACCESS}
  secretKey: {SECRET_KEY}
  admin: true
"""
_SEND: Final = RequestCode.SEND_MESSAGE_V2


class LogSecretTests(SynchronousTestCase):
    """Servers with accounts and every event written."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-secrets-")
        self.addCleanup(folder.cleanup)
        home = Path(folder.name)
        (home / "conf").mkdir()
        (home / "conf/plain_acl.yml").write_text(_ACCOUNTS)
        self.servers = Servers(home, "aclEnable=true", f"rocketmqHome={home}", "log.level=debug",
                               "log.slow_request=1", "trace.server=true")
        self.servers.start()
        self.addCleanup(self.servers.stop)
        self.broker = f"127.0.0.1:{self.servers.broker_port}"

    def test_no_secret_and_no_body(self) -> None:
        """Requests that are good, that are wrongly signed, and that are broken in many ways."""
        self.good()
        self.wrongly_signed()
        self.broken()
        self.servers.stop()
        log = self.servers.log()
        # It is the log of what was done.
        for sign in ("unreadable header", "No accessKey", "refused", "slow request"):
            self.assertIn(sign, log)
        signature = signature_of(b"anything", SECRET_KEY)
        self.assertNotIn(signature, log)
        for secret in (SECRET_KEY, OTHER_KEY, NEW_KEY, BODY, VALUE):
            coded = base64.b64encode(secret.encode()).decode()[:16]
            for text in (secret, secret.lower(), coded):
                self.assertNotIn(text, log)

    def good(self) -> None:
        """Send the requests of an administrator."""
        with Connection(self.broker, credentials=Credentials(ACCESS, SECRET_KEY)) as client:
            for _ in range(3):
                reply = client.request(_SEND, send_header("T", 1, properties={"secret": BODY}),
                                       BODY.encode())
                self.assertEqual(reply.code, ResponseCode.SUCCESS, msg=reply.remark)
            # It waits longer than the limit of slow requests.
            client.request(RequestCode.PULL_MESSAGE, pull_header("T", 3, hold_ms=1500))
            client.request(RequestCode.PULL_MESSAGE, pull_header("T"))
            for header in (
                CreateAccessConfigRequestHeader(access_key="somebody", secret_key=NEW_KEY),
                # A key of an account is not changed so; the refusal must not repeat it.
                CreateAccessConfigRequestHeader(access_key="short", secret_key=OTHER_KEY[:5]),
            ):
                client.request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
            reply = client.request(RequestCode.GET_BROKER_CONFIG)
            self.assertEqual(reply.code, ResponseCode.SUCCESS, msg=reply.remark)
        with Connection(self.servers.namesrv) as client:
            client.request(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(
                namespace="n", key="k", value=VALUE))

    def wrongly_signed(self) -> None:
        """Send requests with unknown accounts, wrong keys, and keys at wrong places."""
        for keys in ((ACCESS, OTHER_KEY), ("nobody", OTHER_KEY)):
            with Connection(self.broker, credentials=Credentials(*keys)) as client:
                reply = client.request(_SEND, send_header("T", 1), BODY.encode())
                self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        with Connection(self.broker) as client:
            self.assertNotEqual(client.request(_SEND, send_header("T", 1), BODY.encode()).code, 0)

    def broken(self) -> None:
        """Send frames with secrets in places that are not decoded, or cannot be."""
        fields = json.dumps({"AccessKey": ACCESS, "Signature": "x", "secretKey": SECRET_KEY,
                             "a": "g", "b": "T", "e": "not a number"})
        frames = [
            json_frame(310, fields, BODY.encode()),
            json_frame(9999, fields, BODY.encode(), more=f',"remark":"{VALUE}"'),
            json_frame(34, fields, BODY.encode()),
            raw_frame(b'{"code":310,"extFields":{"Signature":"' + SECRET_KEY.encode(), b""),
            raw_frame(b'{"opaque":7,"extFields":{"i":"' + BODY.encode() + b'"}}', BODY.encode()),
            raw_frame(SECRET_KEY.encode(), BODY.encode(), serialize_type=1),
            raw_frame(b"{}", BODY.encode(), header_size=1 << 20),
            SECRET_KEY.encode() * 4,
        ]
        for address in (self.broker, self.servers.namesrv):
            for frame in frames:
                connection = RawConnection(address)
                try:
                    connection.says(frame)
                    connection.hears()
                except (Closed, TimeoutError):
                    pass
                finally:
                    connection.close()
