"""One file of accounts, and its text after a change.

A file is a map. ``globalWhiteRemoteAddresses`` is a list of patterns, ``accounts`` is a list of
maps, and ``dataVersion`` is a list whose first map counts the changes made by requests. All scalars
are read as the text that is written, so a secret key of digits keeps its leading zeros.

A change parses and rewrites the whole file: unknown entries are kept and comments are lost, as in
Apache's broker. A changed account is moved to the end, as it is there.

YAML errors are reported only by line and column, because the line itself may contain a secret key.

Source: PlainPermissionManager.load, createAclAccessConfigMap, updateAclConfigFileVersion @4.9.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import yaml

from twistmq.acl.accounts import (
    Account,
    PlainAccessConfig,
    account_of,
    config_of,
    texts_of,
)
from twistmq.acl.addresses import AddressPattern, parse_pattern
from twistmq.acl.errors import AclError
from twistmq.broker.api.bodies import DataVersion

__all__ = ["AclFile", "read_acl_file", "with_account", "with_white_addresses", "without_account"]

_WHITE: Final = "globalWhiteRemoteAddresses"
_ACCOUNTS: Final = "accounts"
_VERSION: Final = "dataVersion"
#: Plain scalars that are not text: null, and the key that merges another map.
_TAGS: Final = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")

Tree = dict[str, Any]


class _TextLoader(yaml.SafeLoader):
    """Reads all plain scalars except null as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class AclFile:
    """The content of a file; ``has_data`` is False for a file that contains no map."""

    white_addresses: tuple[str, ...] = ()
    white_patterns: tuple[AddressPattern, ...] = ()
    configs: tuple[PlainAccessConfig, ...] = ()
    accounts: tuple[Account, ...] = ()
    #: The version in the file; None if it is missing.
    version: DataVersion | None = None
    has_data: bool = False


def read_acl_file(data: bytes) -> AclFile:
    """Parse a file.

    :raises AclError: when it is not YAML, or its contents are not valid.
    """
    tree = _tree(data)
    if not tree:
        return AclFile()
    addresses = texts_of(tree, _WHITE) or []
    configs = [config_of(fields) for fields in _accounts(tree)]
    return AclFile(tuple(addresses), tuple(parse_pattern(text) for text in addresses),
                   tuple(configs), tuple(account_of(config) for config in configs),
                   _version(tree), True)


def _tree(data: bytes) -> Tree:
    try:
        tree = yaml.load(data, _TextLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise AclError(f"{position}not YAML") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise AclError(f"not YAML ({type(error).__name__})") from None
    if tree is None or tree == "":
        return {}
    if not isinstance(tree, dict):
        raise AclError("not a map of names and values")
    return tree


def _accounts(tree: Tree) -> list[dict[str, Any]]:
    accounts = tree.get(_ACCOUNTS)
    if accounts is None:
        return []
    if not isinstance(accounts, list) or not all(isinstance(one, dict) for one in accounts):
        raise AclError(f"{_ACCOUNTS} is not a list of maps")
    return accounts


def _version(tree: Tree) -> DataVersion | None:
    rows = tree.get(_VERSION)
    if not rows:
        return None
    try:
        return DataVersion(timestamp=int(rows[0]["timestamp"]), counter=int(rows[0]["counter"]))
    except (TypeError, ValueError, KeyError, IndexError):
        raise AclError(f"{_VERSION} is not a list of a counter and a timestamp") from None


# --- changes


def with_account(data: bytes, config: PlainAccessConfig, now_ms: int) -> bytes:
    """Return the file with an account added, or with the given fields of it changed.

    :raises AclError: when the file cannot be read.
    """
    tree = _tree(data)
    others = [fields for fields in _accounts(tree) if not _is(fields, config.access_key)]
    existing = [fields for fields in _accounts(tree) if _is(fields, config.access_key)]
    changed = existing[0] if existing else {}
    changed |= {name: value for name, value in _given(config).items() if value is not None}
    tree[_ACCOUNTS] = [*others, changed]
    return _written(tree, now_ms)


def without_account(data: bytes, access_key: str, now_ms: int) -> bytes:
    """Return the file without an account; :raises AclError: when the file cannot be read."""
    tree = _tree(data)
    tree[_ACCOUNTS] = [fields for fields in _accounts(tree) if not _is(fields, access_key)]
    return _written(tree, now_ms)


def with_white_addresses(data: bytes, addresses: list[str], now_ms: int) -> bytes:
    """Return the file with other white addresses; :raises AclError: when it cannot be read."""
    tree = _tree(data)
    tree[_WHITE] = addresses
    return _written(tree, now_ms)


def _is(fields: dict[str, Any], access_key: str | None) -> bool:
    return config_of(fields).access_key == access_key


def _given(config: PlainAccessConfig) -> dict[str, Any]:
    """Return an account with the field names and order of a file; empty texts change nothing."""
    return {
        "accessKey": config.access_key, "secretKey": config.secret_key or None,
        "whiteRemoteAddress": config.white_remote_address, "admin": config.admin,
        "defaultTopicPerm": config.default_topic_perm or None,
        "defaultGroupPerm": config.default_group_perm or None,
        "topicPerms": config.topic_perms, "groupPerms": config.group_perms,
    }


def _written(tree: Tree, now_ms: int) -> bytes:
    """Encode the tree with a new version.

    Each ``admin`` becomes true or false, because Java does not accept every word that YAML allows.
    """
    version = _version(tree) or DataVersion()
    version.next_version(now_ms)
    for fields in _accounts(tree):
        if fields.get("admin") is not None:
            fields["admin"] = config_of(fields).admin
    tree[_VERSION] = [{"counter": version.counter, "timestamp": version.timestamp}]
    text: str = yaml.safe_dump(tree, default_flow_style=False, sort_keys=False, allow_unicode=True)
    return text.encode()
