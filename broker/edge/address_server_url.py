"""The settings for finding name servers through an address server or DNS.

Source: MixAll.getWSAddr, BrokerController.initializeBrokerScheduledTasks @5.3.3.
"""

from __future__ import annotations

import re
from typing import Final

from twistmq.broker.config.settings import Settings

__all__ = ["ADDRESS_NAMES", "ADDRESS_SERVER", "LOOKUP_PERIOD", "PERIOD", "address_server_url",
           "asks_address_server", "looks_names_up"]

ADDRESS_SERVER: Final = "fetchNamesrvAddrByAddressServer"
_DOMAIN: Final = "rmqAddressServerDomain"
_GROUP: Final = "rmqAddressServerSubGroup"
#: The setting for the time between two requests, ms.
PERIOD: Final = "fetchNamesrvAddrInterval"
_LOOKUP: Final = "fetchNameSrvAddrByDnsLookup"
#: The setting for the time between two look-ups, ms.
LOOKUP_PERIOD: Final = "updateNameServerAddrPeriod"
#: The settings that determine the source of the addresses.
ADDRESS_NAMES: Final = frozenset({"namesrvAddr", ADDRESS_SERVER, _DOMAIN, _GROUP, _LOOKUP})
#: Source: MixAll.getWSAddr.
_PORT: Final = 8080
_HOST: Final = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?")
_PATH: Final = re.compile(r"[\w./~%?&=+-]+")


def asks_address_server(settings: Settings) -> bool:
    """Return whether an address server is used: it is enabled, and no addresses are given."""
    return settings.flag(ADDRESS_SERVER) and not settings.addresses("namesrvAddr")


def looks_names_up(settings: Settings) -> bool:
    """Return whether the host names in the settings are looked up in DNS."""
    return settings.flag(_LOOKUP) and bool(settings.addresses("namesrvAddr"))


def address_server_url(settings: Settings) -> str:
    """Return the URL of the address server.

    :raises SettingsError: when the settings do not form a URL.
    """
    domain, group = settings.text(_DOMAIN).strip(), settings.text(_GROUP).strip()
    host = _HOST.fullmatch(domain)
    if host is None:
        raise settings.error(_DOMAIN, "is not HOST or HOST:PORT")
    if _PATH.fullmatch(group) is None:
        raise settings.error(_GROUP, "cannot be a part of an HTTP URL")
    port = "" if host[2] else f":{_PORT}"
    return f"http://{domain}{port}/rocketmq/{group}"
