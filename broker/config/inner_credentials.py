"""The account with which a broker signs its requests to other brokers.

``innerClientAuthenticationCredentials={"accessKey":"...","secretKey":"..."}``, as in Apache's
brokers and proxies. A slave copies its master's tables with it.

Source: AuthConfig, BrokerOuterAPI.newAclRPCHook @5.3.3.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twistmq.broker.config.settings import Settings
from twistmq.broker.errors import SettingsError
from twistmq.protocol.signature import Credentials

__all__ = ["inner_credentials"]

_NAME: Final = "innerClientAuthenticationCredentials"


class _SessionCredentials(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str


def inner_credentials(settings: Settings) -> Credentials | None:
    """Return the account of a broker; None if requests are not signed.

    :raises SettingsError: when the setting cannot be read; the text does not show it.
    """
    text = settings.text(_NAME).strip()
    if not text:
        return None
    try:
        keys = msgspec.json.decode(text, type=_SessionCredentials)
        if not keys.access_key.strip() or not keys.secret_key.strip():
            raise ValueError("a key is blank")
        return Credentials(keys.access_key, keys.secret_key)
    except ValueError:  # This is the base class of the errors of msgspec, too.
        raise SettingsError(f'{_NAME} must be {{"accessKey":"...","secretKey":"..."}}') from None
