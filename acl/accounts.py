"""Accounts: the form in files and tools, and the form in which requests are checked.

A file or a tool gives an account as texts, such as ``topicA=PUB|SUB``. A broker checks every
request against an account, often thousands of times a second, so it converts the texts once:
``account_of`` parses the permissions and the addresses, and prepares the signer of the secret key.

Two things make a check more than a look-up of a name. A default permission is for topics that an
account does not name, and some of these contain messages of other topics or of every account; for
these the default does not permit reading. And a retry topic may belong to more than one group and
topic (see ``known_names``), each of which must be permitted.

An account remembers the requests that it permitted, because clients repeat them for hours. A
decision is not remembered if a topic or group that is created later could change it.

Source: PlainAccessConfig, PlainAccessResource, PlainPermissionManager.checkPlainAccessConfig,
buildPlainAccessResource, PlainPermissionChecker.check @4.9.4 and 5.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from twistmq.acl.addresses import AddressPattern, parse_pattern
from twistmq.acl.errors import AclError
from twistmq.acl.known_names import NO_NAMES, KnownNames, retry_readings
from twistmq.acl.permissions import (
    Permission,
    allows,
    check_resources,
    parse_permission,
    parse_resources,
    resource_name,
)
from twistmq.acl.resources import CLUSTER, DecidingValues, PopRetries, Resource
from twistmq.broker.api.bodies import Body
from twistmq.broker.api.topics import (
    BROADCAST_GROUP_SUFFIX,
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    SYSTEM_GROUP_PREFIX,
    is_light,
    retry_topic,
)
from twistmq.broker.api.wire import Signer

__all__ = ["Account", "PlainAccessConfig", "account_of", "check_config", "config_of", "texts_of"]

#: An access key and a secret key must be longer than this, characters.
_KEY_LENGTH: Final = 6
#: Limits of the cache of permitted requests: entries, and characters of the names of one entry.
_PASSED_MAX: Final = 4096
_PASSED_LENGTH_MAX: Final = 512
#: A name with this ending is refused, because clients do not use it.
_BROADCAST_SUFFIXES: Final = 8 * BROADCAST_GROUP_SUFFIX
#: The text shown in place of a secret key.
HIDDEN: Final = "******"


class PlainAccessConfig(Body):
    """An account in a file and in answers to tools; None stands for a value that is not given."""

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None

    def __repr__(self) -> str:
        return f"PlainAccessConfig(access_key={self.access_key!r}, admin={self.admin})"


@dataclass(frozen=True, slots=True)
class Account:
    """An account in the form in which requests are checked.

    :param permissions: permissions by topic, or by the retry topic of a group.
    :param white_address: addresses from which the account needs no signature.
    """

    access_key: str
    secret_key: str = field(repr=False)
    is_admin: bool
    default_topic: Permission
    default_group: Permission
    permissions: Mapping[str, Permission]
    white_address: AddressPattern
    signer: Signer = field(init=False, repr=False, compare=False)
    #: The deciding values of permitted requests, because most producers send the same values
    #: for hours. A changed file creates new accounts, whose caches are empty.
    passed: set[DecidingValues] = field(
        default_factory=set, init=False, repr=False, compare=False)
    #: Whether a send may pass without the validator once it is in ``passed``.
    passes_runs: bool = field(init=False, repr=False, compare=False)
    #: Whether the account may read every topic.
    reads_all: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "signer", Signer(self.secret_key))
        object.__setattr__(self, "passes_runs", not self.white_address.text)
        object.__setattr__(self, "reads_all", allows(self.default_topic, Permission.SUB) and all(
            allows(permission, Permission.SUB) for permission in self.permissions.values()))

    def note_passed(self, values: DecidingValues) -> None:
        """Remember that a request is permitted, unless its names are too long."""
        _, topic, group = values
        if len(topic or "") + len(group or "") > _PASSED_LENGTH_MAX:
            return
        if len(self.passed) >= _PASSED_MAX:
            self.passed.clear()
        self.passed.add(values)

    def check(
        self, code: int, needed: Iterable[tuple[Resource, Permission]],
        names: KnownNames = NO_NAMES,
    ) -> bool:
        """Check the permissions for a request; return normally if it is permitted.

        :param code: the code of the request.
        :param needed: the needed resources, each with its permission.
        :param names: the existing topics and groups.
        :returns: whether the same request stays permitted while the account is unchanged; if False,
            a new topic or group could change the decision.
        :raises AclError: when the account does not have a needed permission.
        """
        if self.is_admin:
            return True
        is_lasting = True
        for resource, permission in needed:
            if resource is CLUSTER:
                raise AclError(f"Need admin permission for request code={code}, "
                               f"but accessKey={self.access_key} is not")
            if isinstance(resource, PopRetries):
                group = retry_topic(resource.group)
                if group not in self.permissions:
                    name = f"{group}_{resource.topic}"
                    is_lasting &= self._check_readings(name, names, resource)
                continue
            if not allows(self._owned(resource, names), permission):
                raise AclError(f"No default permission for {resource_name(resource)}")
            if resource.startswith(RETRY_GROUP_TOPIC_PREFIX) and resource not in self.permissions:
                is_lasting &= self._check_readings(resource, names)
        return is_lasting

    def _check_readings(
        self, name: str, names: KnownNames, known: PopRetries | None = None
    ) -> bool:
        """Check each group and topic that a retry topic may belong to, unless a row names it.

        :param name: a topic ``%RETRY%...``.
        :param known: a group and topic that were checked already.
        :returns: whether the name has no other reading, now or later.
        :raises AclError: when the account may not read one of these topics, or act for a group.
        """
        is_lasting = True
        for group, topic in retry_readings(name):
            if known is not None and (topic, group) == known:
                continue
            is_lasting = False
            group_resource = retry_topic(group)
            if not ((group_resource in self.permissions or names.has_group(group))
                    and (topic in self.permissions or names.has_topic(topic))):
                continue
            if not (allows(self._owned(group_resource, names), Permission.SUB)
                    and allows(self._owned(topic, names), Permission.SUB)):
                raise AclError(
                    f"No default permission for {resource_name(name)}: the topic {name} may have "
                    f"retries of the group {group} and the topic {topic}")
        return is_lasting

    def _owned(self, resource: str, names: KnownNames) -> Permission:
        owned = self.permissions.get(resource)
        if owned is not None:
            return owned
        if resource.startswith(RETRY_GROUP_TOPIC_PREFIX):
            # Differs from Apache: the offsets of a broadcast group have a separate group name.
            if resource.endswith(_BROADCAST_SUFFIXES):
                # A client may repeat the suffix more often than calls may be nested.
                return Permission.DENY
            if resource.endswith(BROADCAST_GROUP_SUFFIX):
                return self._owned(resource.removesuffix(BROADCAST_GROUP_SUFFIX), names)
            # Differs from Apache: the broker itself acts for these groups.
            is_brokers = resource.startswith(SYSTEM_GROUP_PREFIX, len(RETRY_GROUP_TOPIC_PREFIX))
            return Permission.DENY if is_brokers else self.default_group
        # Differs from Apache: a default never opens a topic that contains other topics' messages.
        if resource.startswith(DLQ_GROUP_TOPIC_PREFIX):
            group = self._owned(
                retry_topic(resource.removeprefix(DLQ_GROUP_TOPIC_PREFIX)), names)
            return self.default_topic if allows(group, Permission.SUB) else Permission.DENY
        if names.is_internal(resource):
            return Permission.DENY
        if not self.reads_all and (is_light(resource) or names.is_shared(resource)):
            return Permission(self.default_topic.value & ~Permission.SUB.value)
        return self.default_topic


def check_config(config: PlainAccessConfig) -> None:
    """Check an account that a tool sends.

    :raises AclError: when a value is invalid.
    """
    _check_keys(config)
    check_resources(config.topic_perms or ())
    check_resources(config.group_perms or ())


def _check_keys(config: PlainAccessConfig) -> None:
    keys = (config.access_key, config.secret_key)
    if any(key is None or len(key) <= _KEY_LENGTH for key in keys):
        secret = "null" if config.secret_key is None else HIDDEN
        raise AclError(f"The accessKey={config.access_key or 'null'} and secretKey={secret} "
                       "cannot be null and length should longer than 6")


def account_of(config: PlainAccessConfig) -> Account:
    """Convert an account to the form in which requests are checked.

    :raises AclError: when a key is too short, or a permission or an address is not valid.
    """
    _check_keys(config)
    assert config.access_key is not None and config.secret_key is not None
    return Account(
        config.access_key, config.secret_key, config.admin,
        parse_permission(config.default_topic_perm), parse_permission(config.default_group_perm),
        {**parse_resources(config.group_perms or (), groups=True),
         **parse_resources(config.topic_perms or (), groups=False)},
        parse_pattern(config.white_remote_address))


def config_of(fields: Mapping[str, Any]) -> PlainAccessConfig:
    """Read an account of a file; unknown entries are ignored.

    :raises AclError: when a value has the wrong type; the text names only the field.
    """
    return PlainAccessConfig(
        access_key=text_of(fields, "accessKey"), secret_key=text_of(fields, "secretKey"),
        white_remote_address=text_of(fields, "whiteRemoteAddress"),
        admin=flag_of(fields, "admin"),
        default_topic_perm=text_of(fields, "defaultTopicPerm"),
        default_group_perm=text_of(fields, "defaultGroupPerm"),
        topic_perms=texts_of(fields, "topicPerms"), group_perms=texts_of(fields, "groupPerms"))


_FLAGS: Final = {
    **dict.fromkeys(("true", "yes", "on"), True), **dict.fromkeys(("", "false", "no", "off"), False)
}


def text_of(fields: Mapping[str, Any], name: str) -> str | None:
    """Return a text, or None if it is missing; :raises AclError: for a list or a map."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise AclError(f"{name} is not a text")


def flag_of(fields: Mapping[str, Any], name: str) -> bool:
    """Return the flag for a word that YAML reads as one; :raises AclError: for anything else."""
    flag = _FLAGS.get((text_of(fields, name) or "").strip().lower())
    if flag is None:
        raise AclError(f"{name} is neither true nor false")
    return flag


def texts_of(fields: Mapping[str, Any], name: str) -> list[str] | None:
    """Return a list of texts, or None if it is missing; :raises AclError: for anything else."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise AclError(f"{name} is not a list of texts")
    return value
