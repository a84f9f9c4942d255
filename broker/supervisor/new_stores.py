"""Copies the topics and groups of existing brokers to the stores of new brokers.

A store is new if it has neither saved topics nor a file of the commit log; its folder may exist,
for example as the mount point of a disk. A store that has messages but has lost its topics is left
to its broker, which restores the topics from its own queues, because the topics of other brokers
may have fewer queues.

Source: design of twistmq.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from twisted.logger import Logger

from twistmq.broker.config.settings import Settings
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.supervisor.members import Member
from twistmq.protocol import topic_names
from twistmq.protocol.bodies import Body, SubscriptionGroupWrapper, TopicConfigSerializeWrapper

__all__ = ["give_tables"]

_TOPICS: Final = "topics.json"
_GROUPS: Final = "subscriptionGroup.json"

T = TypeVar("T", bound=Body)

_log = Logger()


def give_tables(io: IStoreIO, settings: Settings, members: Sequence[Member]) -> list[str]:
    """Copy the topics and groups of the other brokers to brokers with a new store.

    The queues of a topic are spread over all brokers, so a new broker takes part in the existing
    topics. Messages and offsets are not copied, because offsets of messages that a broker does not
    have are meaningless.

    :returns: the names of the brokers that received tables.
    :raises StoreDamaged: when an existing table cannot be read.
    """
    folders = {member.name: member.values["storePathRootDir"] for member in members}
    having = [folder for folder in folders.values() if _has_topics(io, folder)]
    new = [member.name for member in members if _is_new(io, member)]
    if not (having and new):
        return []
    own = {settings.text("brokerClusterName"), *folders}
    topics, groups = TopicConfigSerializeWrapper(), SubscriptionGroupWrapper()
    for folder in having:  # of two rows with the same name, the first one is kept
        saved = _read(io, _path(folder, _TOPICS), TopicConfigSerializeWrapper)
        topics.data_version = saved.data_version
        for name, topic in saved.topic_config_table.items():
            if name not in own and not topic_names.is_system_topic(name):
                topics.topic_config_table.setdefault(name, topic)
        of_groups = _read(io, _path(folder, _GROUPS), SubscriptionGroupWrapper)
        groups.data_version = of_groups.data_version
        for name, group in of_groups.subscription_group_table.items():
            groups.subscription_group_table.setdefault(name, group)
    for name in new:
        # The topics are written last: after a crash between the two files, a store without topics
        # still counts as new.
        for file, body in ((_GROUPS, groups), (_TOPICS, topics)):
            ConfigFile(io, _path(folders[name], file)).save_bytes(body.encode_pretty())
        _log.info("the new broker {name} receives {topics} topics and {groups} groups of the other "
                  "brokers", name=name, topics=len(topics.topic_config_table),
                  groups=len(groups.subscription_group_table))
    return new


def _has_topics(io: IStoreIO, folder: str) -> bool:
    """Return whether a store has saved topics, or their backup."""
    path = _path(folder, _TOPICS)
    return io.exists(path) or io.exists(f"{path}.bak")


def _is_new(io: IStoreIO, member: Member) -> bool:
    """Return whether a broker has not stored anything yet."""
    folder = member.values["storePathRootDir"]
    log = member.values.get("storePathCommitLog", f"{folder}/commitlog")
    try:
        has_messages = any(name.isdecimal() for name in io.list_directory(log))
    except OSError:
        has_messages = False
    return not has_messages and not _has_topics(io, folder)


def _read(io: IStoreIO, path: str, kind: type[T]) -> T:
    """Return a table from its file; an empty table if there is no file.

    :raises StoreDamaged: when the file cannot be read.
    """
    tables = [kind()]
    ConfigFile(io, path).load(lambda text: tables.append(kind.decode_saved(text.encode())))
    return tables[-1]


def _path(folder: str, file: str) -> str:
    return f"{folder}/config/{file}"
