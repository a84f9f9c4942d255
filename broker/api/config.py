"""Settings beyond ``Setting``: bounds, checks, and changes while a broker runs.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.broker.config.folder_checks import require_size
from twistmq.broker.config.inner_credentials import inner_credentials
from twistmq.broker.config.port_checks import (
    ports_of,
    require_address,
    require_number,
    require_port,
)
from twistmq.broker.config.settings import INT_MAX, LONG_MAX, SettingValue
from twistmq.broker.remoting.settings_update import change_settings, changed_reply

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "SettingValue",
    "change_settings",
    "changed_reply",
    "inner_credentials",
    "ports_of",
    "require_address",
    "require_number",
    "require_port",
    "require_size",
]
