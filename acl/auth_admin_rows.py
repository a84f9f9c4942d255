"""The rows of the commands for users and policies of ACL 2.0: ``createUser``, ``createAcl``, ...

This module is loaded for every help text of ``twistmq admin``; the code is elsewhere.

``migrateAcl`` is ours.

Source: the classes of tools/command/auth @5.3.3; 5.5.0 has the same.
"""

from __future__ import annotations

from typing import Final

from twistmq.broker.api import RequestCode as Code
from twistmq.broker.api.admin_commands import BROKER, CLUSTER, Command, Option

__all__ = ["COMMANDS"]

_HERE: Final = "twistmq.acl.auth_admin_commands"
_WHERE: Final = (BROKER, CLUSTER)
_ONE_PLACE: Final = ("broker", "cluster")
_INFO: Final = Code.GET_BROKER_CLUSTER_INFO
_USER: Final = Option("user", ("-u", "--username"), "The name of the user.", required=True)
_TYPE: Final = Option("user_type", ("-t", "--userType"), "Super or Normal.")
_STATUS: Final = Option("status", ("-s", "--userStatus"), "enable or disable.")
_SUBJECT: Final = Option("subject", ("-s", "--subject"), "The user, as User:NAME.", required=True)
_ENTRIES: Final = (
    _SUBJECT,
    Option("resources", ("-r", "--resources"),
           "Topic:NAME, Group:NAME or Cluster:NAME, with * at the end of a name for a prefix, or "
           "*; several are separated by commas.", required=True),
    Option("actions", ("-a", "--actions"),
           "Pub, Sub, Create, Update, Delete, Get, List or All, separated by commas.",
           required=True),
    Option("sources", ("-i", "--sourceIp"),
           "Addresses and networks, separated by commas; all by default."),
    Option("decision", ("-d", "--decision"), "Allow or Deny.", required=True))
_FROM: Final = Option("from_broker", ("-f", "--fromBroker"), "The address of the broker to read.",
                      required=True)
_TO: Final = Option("to_broker", ("-t", "--toBroker"), "The address of the broker to change.",
                    required=True)
_DRY_RUN: Final = Option("dry", ("-d", "--dryRun"), "Only show what would be done.", "flag",
                         default=False)
_CHANGED: Final = ("broker", "address", "user")
_USER_COLUMNS: Final = ("user", "password", "type", "status", "broker")
_ENTRY_COLUMNS: Final = ("subject", "policy", "resource", "actions", "sources", "decision",
                         "broker")
_SUBJECT_CHANGED: Final = ("broker", "address", "subject")
_COPIED: Final = ("from", "to", "step")

COMMANDS: Final = (
    Command("createUser", "acl", "Create a user.", f"{_HERE}:create_user",
            (_USER, Option("password", ("-p", "--password"),
                           "The secret that signs requests; - asks for it.", "secret",
                           required=True), _TYPE, *_WHERE),
            (_INFO, Code.AUTH_CREATE_USER), _CHANGED, one_of=_ONE_PLACE),
    Command("updateUser", "acl", "Change a user.", f"{_HERE}:update_user",
            (_USER, Option("password", ("-p", "--password"),
                           "The new secret; - asks for it.", "secret"), _TYPE, _STATUS, *_WHERE),
            (_INFO, Code.AUTH_UPDATE_USER), _CHANGED, one_of=_ONE_PLACE),
    Command("deleteUser", "acl", "Delete a user and the user's policies.", f"{_HERE}:delete_user",
            (_USER, *_WHERE), (_INFO, Code.AUTH_DELETE_USER), _CHANGED, one_of=_ONE_PLACE),
    Command("getUser", "acl", "Show a user, with a masked password.", f"{_HERE}:show_user",
            (Option("user", ("-u", "--username"), "The name of the user."), *_WHERE),
            (_INFO, Code.AUTH_GET_USER), _USER_COLUMNS, one_of=_ONE_PLACE),
    Command("listUser", "acl", "Show users, with masked passwords.", f"{_HERE}:list_users",
            (Option("name_filter", ("-f", "--filter"), "A part of the name."), *_WHERE),
            (_INFO, Code.AUTH_LIST_USER), _USER_COLUMNS, one_of=_ONE_PLACE),
    Command("copyUser", "acl", "Copy users to another broker.", f"{_HERE}:copy_users",
            (_FROM, _TO, Option("users", ("-u", "--usernames"),
                                "Names, separated by commas; all by default."), _DRY_RUN),
            (Code.AUTH_LIST_USER, Code.AUTH_GET_USER, Code.AUTH_CREATE_USER,
             Code.AUTH_UPDATE_USER), ("user", *_COPIED)),
    Command("createAcl", "acl", "Add entries to the policies of a user.", f"{_HERE}:create_acl",
            (*_ENTRIES, *_WHERE), (_INFO, Code.AUTH_CREATE_ACL), _SUBJECT_CHANGED,
            one_of=_ONE_PLACE),
    Command("updateAcl", "acl", "Change entries of the policies of a user.",
            f"{_HERE}:update_acl", (*_ENTRIES, *_WHERE), (_INFO, Code.AUTH_UPDATE_ACL),
            _SUBJECT_CHANGED, one_of=_ONE_PLACE),
    Command("deleteAcl", "acl", "Delete policies of a user.", f"{_HERE}:delete_acl",
            (_SUBJECT, Option("resource", ("-r", "--resources"),
                              "The resource whose entry is deleted; all by default."), *_WHERE),
            (_INFO, Code.AUTH_DELETE_ACL), _SUBJECT_CHANGED, one_of=_ONE_PLACE),
    Command("getAcl", "acl", "Show the policies of a user.", f"{_HERE}:show_acl",
            (Option("subject", ("-s", "--subject"), "The user, as User:NAME."), *_WHERE),
            (_INFO, Code.AUTH_GET_ACL), _ENTRY_COLUMNS, one_of=_ONE_PLACE),
    Command("listAcl", "acl", "Show policies.", f"{_HERE}:list_acls",
            (Option("subject", ("-s", "--subject"), "A part of the subject."),
             Option("resource", ("-r", "--resource"), "A part of the resource."), *_WHERE),
            (_INFO, Code.AUTH_LIST_ACL), _ENTRY_COLUMNS, one_of=_ONE_PLACE),
    Command("copyAcl", "acl", "Copy policies to another broker.", f"{_HERE}:copy_acls",
            (_FROM, _TO, Option("subjects", ("-s", "--subjects"),
                                "User:NAME, separated by commas; all by default."), _DRY_RUN),
            (Code.AUTH_LIST_ACL, Code.AUTH_GET_ACL, Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL),
            ("subject", *_COPIED)),
    Command("migrateAcl", "acl", "Make users and policies of the accounts of ACL 1.0.",
            f"{_HERE}:migrate_accounts",
            (Option("home", ("-f", "--fromHome"),
                    "The home of the broker whose account files are read: they are below its "
                    "folder conf.", required=True), _TO, _DRY_RUN),
            (Code.AUTH_GET_USER, Code.AUTH_CREATE_USER, Code.AUTH_CREATE_ACL),
            ("user", "type", "policies", "defaults", "step")),
)
