"""Logins of the console at a broker, ours or Apache's."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.account_session import AccountSession, KeysRefused
from twistmq.console.page_session import PageSession, is_denial
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.protocol.signature import Credentials

__all__ = ["check_logins"]

#: The time for all questions, seconds.
_PATIENCE_S = 60.0


def check_logins(test: SynchronousTestCase, namesrv: str, keys: tuple[str, str]) -> None:
    """Check that right keys are accepted, and wrong ones and missing permissions are not."""
    with PageSession(namesrv, timeout_s=_PATIENCE_S) as unsigned:
        for name, secret, is_right in (
                (*keys, True), (keys[0], "wrong-secret", False), ("nobody-key", keys[1], False)):
            with AccountSession(unsigned, Credentials(name, secret)) as session:
                page = session.for_page(_PATIENCE_S)
                if not is_right:
                    test.assertRaises(KeysRefused, page.check_keys)
                    continue
                page.check_keys()
                [broker] = page.all_brokers()
                error = test.assertRaises(
                    RequestRefused, page.ask, broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC,
                    CreateTopicRequestHeader("Made", "TBW102", 4, 4, 6, "SINGLE_TAG"))
                test.assertTrue(is_denial(error), msg=str(error))
