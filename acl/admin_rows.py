"""The rows of the account commands that mqadmin has up to version 5.2: ``updateAclConfig``, ...

This module is loaded for every help text of ``twistmq admin``; the code is elsewhere.

Source: the classes of tools/command/acl @4.9.4.
"""

from __future__ import annotations

from typing import Final

from twistmq.broker.api import RequestCode
from twistmq.broker.api.admin_commands import BROKER, CLUSTER, Command, Option

__all__ = ["COMMANDS"]

_ACCOUNT: Final = Option("account", ("-a", "--accessKey"), "The account.", required=True)
_WHERE: Final = (BROKER, CLUSTER)
_ONE_PLACE: Final = ("broker", "cluster")
_INFO: Final = RequestCode.GET_BROKER_CLUSTER_INFO
_HERE: Final = "twistmq.acl.admin_commands"

COMMANDS: Final = (
    Command("updateAclConfig", "acl", "Add an account, or change it.", f"{_HERE}:update_account",
            (_ACCOUNT,
             Option("secret", ("-s", "--secretKey"), "The secret key; - asks for it.", "secret",
                    required=True), *_WHERE,
             Option("white", ("-w", "--whiteRemoteAddress"), "Addresses that need no signature."),
             Option("topic_perm", ("-i", "--defaultTopicPerm"), "Default permission for topics."),
             Option("group_perm", ("-u", "--defaultGroupPerm"), "Default permission for groups."),
             Option("topic_perms", ("-t", "--topicPerms"), "topicA=DENY,topicD=SUB."),
             Option("group_perms", ("-g", "--groupPerms"), "groupD=DENY,groupE=SUB."),
             Option("admin", ("-m", "--admin"), "Whether the account is an administrator.", "bool",
                    default=False)),
            (_INFO, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG), ("broker", "address", "account"),
            one_of=_ONE_PLACE),
    Command("deleteAclConfig", "acl", "Delete an account.", f"{_HERE}:delete_account",
            (_ACCOUNT, *_WHERE), (_INFO, RequestCode.DELETE_ACL_CONFIG),
            ("broker", "address", "account"), one_of=_ONE_PLACE),
    Command("updateGlobalWhiteAddr", "acl", "Set the addresses that need no account.",
            f"{_HERE}:update_white_addresses",
            (Option("addresses", ("-g", "--globalWhiteRemoteAddresses"),
                    "The addresses, separated by commas.",
                    required=True),
             Option("file", ("-p", "--aclFileFullPath"), "The account file to change."), *_WHERE),
            (_INFO, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG),
            ("broker", "address", "addresses"), one_of=_ONE_PLACE),
    Command("clusterAclConfigVersion", "acl", "Show the versions of the account files.",
            f"{_HERE}:versions", _WHERE, (_INFO, RequestCode.GET_BROKER_CLUSTER_ACL_INFO),
            ("cluster", "broker", "address", "file", "version", "updated"), one_of=_ONE_PLACE),
    Command("getAclConfig", "acl", "Show accounts, without their secret keys.",
            f"{_HERE}:accounts", _WHERE, (_INFO, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG),
            ("broker", "address", "account", "admin", "topic_perm", "group_perm", "topic_perms",
             "group_perms", "white"), one_of=_ONE_PLACE),
)
