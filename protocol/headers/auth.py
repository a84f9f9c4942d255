"""Headers of requests about users and policies of ACL 2.0 (3001-3010).

Source: CreateUserRequestHeader, UpdateUserRequestHeader, DeleteUserRequestHeader,
GetUserRequestHeader, ListUsersRequestHeader, CreateAclRequestHeader, UpdateAclRequestHeader,
DeleteAclRequestHeader, GetAclRequestHeader, ListAclsRequestHeader @5.3.3.
"""

from __future__ import annotations

from twistmq.protocol.header import CommandHeader

__all__ = ["AclRequestHeader", "DeleteAclRequestHeader", "ListAclsRequestHeader",
           "ListUsersRequestHeader", "UserRequestHeader"]


class UserRequestHeader(CommandHeader):
    """Names the user to create, change, delete or get."""

    username: str | None = None


class ListUsersRequestHeader(CommandHeader):
    """Requests the users whose name contains a text; None or blank for all."""

    filter: str | None = None


class AclRequestHeader(CommandHeader):
    """Names the subject whose policies are created, changed or requested: "User:name"."""

    subject: str | None = None


class DeleteAclRequestHeader(CommandHeader):
    """Deletes the policies of a subject, or one entry of them."""

    subject: str | None = None
    #: "Custom" or "Default".
    policy_type: str | None = None
    #: The resource of the entry; None or blank for all policies of the subject.
    resource: str | None = None


class ListAclsRequestHeader(CommandHeader):
    """Requests the policies whose subject and resource contain a text; None or blank for all."""

    subject_filter: str | None = None
    resource_filter: str | None = None
