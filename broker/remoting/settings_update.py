"""Settings changed by a tool (25, 318): parsed, checked, written to the file, and applied.

Source: AdminBrokerProcessor.updateBrokerConfig, DefaultRequestProcessor.updateConfig,
Configuration @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from twistmq.broker.config.properties_file import decode_properties, parse_properties
from twistmq.broker.config.settings import Settings, SettingValue
from twistmq.broker.errors import SettingsError
from twistmq.broker.remoting.messages import Reply
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import BrokerError, RequestRefused

__all__ = ["change_settings", "changed_reply"]


def change_settings(
    settings: Settings, body: bytes, never_changed: frozenset[str],
    closed: Set[str] = frozenset(),
) -> tuple[dict[str, str], dict[str, SettingValue]]:
    """Change settings and the file in which they are saved; all of them are changed, or none.

    Differs from Apache: an invalid value, or a file that cannot be written, refuses the request,
    whereas Apache logs the fault and reports a success.

    :param body: a properties text.
    :param never_changed: settings that no tool may change, in addition to ``configBlackList``.
    :param closed: settings that can be changed only in the file.
    :returns: the requested settings, and the settings whose value is different now.
    :raises RequestRefused: when nothing was changed; the remark states why.
    """
    try:
        text, _ = decode_properties(body)
        changes = {each.key: each.value for each in parse_properties(text, "request")}
        black_list = settings.text("configBlackList").split(";")
        if not changes.keys().isdisjoint(never_changed.union(black_list)):
            raise RequestRefused(ResponseCode.NO_PERMISSION,
                                 "Can not update config in black list.")
        if refused := sorted(closed & changes.keys()):
            raise RequestRefused(ResponseCode.NO_PERMISSION,
                                 f"{refused[0]}: a tool cannot change it, change it in the file")
        return changes, settings.update(changes, save=True)
    except (SettingsError, BrokerError) as error:
        if isinstance(error, RequestRefused):
            raise
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None


def changed_reply(settings: Settings, changes: Mapping[str, str]) -> Reply:
    """Make the success reply; its remark names the settings that apply from the next start."""
    later = settings.pending(sorted(changes))
    return Reply(remark=f"from the next start on: {', '.join(later)}" if later else None)
