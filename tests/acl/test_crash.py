"""Users and policies over the end of the process, or of the power, at every change of the disk.

What was answered is there after the next start, and what was not yet answered is there as a whole
or not at all.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.acl.auth_box import ROOT, AuthTestCase, policy
from tests.every_change import EveryChangeCase
from twistmq.acl import auth
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.protocol.bodies import AclInfo, UserInfo, decode_infos
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.auth import AclRequestHeader, UserRequestHeader

#: Password and resources of each user.
State = dict[str, tuple[str, tuple[str, ...]]]


class CrashTests(AuthTestCase, EveryChangeCase):
    """The end comes at every change of the disk."""

    told = ("known", "coming")

    def setUp(self) -> None:
        EveryChangeCase.setUp(self)

    def begin(self) -> None:
        """A new store."""
        self.disk = PowerLossDisk()
        self.box = self.start_again()
        #: What was answered, and what will be once the request under way is answered.
        self.known: State = {"root": (ROOT[1], ())}
        self.coming = self.known

    def start_again(self) -> KernelBox:
        return KernelBox([("auth", auth.Plugin)], self.settings, self.disk)

    def change(
        self, code: int, header: CommandHeader, body: bytes, change: Callable[[State], None]
    ) -> None:
        """Send a request that is answered if the disk is there."""
        self.coming = dict(self.known)
        change(self.coming)
        self.accepted(self.ask(ROOT, code, header, body))
        self.known = self.coming

    def live(self) -> None:
        """Each kind of change, several times."""
        for number in range(5):
            name = f"user{number}"
            named, about = UserRequestHeader(username=name), AclRequestHeader(f"User:{name}")
            self.change(RequestCode.AUTH_CREATE_USER, named, UserInfo(password="first").encode(),
                        lambda state, name=name: state.update({name: ("first", ())}))
            self.change(RequestCode.AUTH_CREATE_ACL, about, policy("Topic:a").encode(),
                        lambda state, name=name: state.update({name: ("first", ("Topic:a",))}))
            self.change(RequestCode.AUTH_UPDATE_USER, named, UserInfo(password="next").encode(),
                        lambda state, name=name: state.update({name: ("next", ("Topic:a",))}))
            self.change(RequestCode.AUTH_UPDATE_ACL, about, policy("Topic:b").encode(),
                        lambda state, name=name: state.update(
                            {name: ("next", ("Topic:a", "Topic:b"))}))
            if number % 2:
                self.change(RequestCode.AUTH_DELETE_USER, named, b"",
                            lambda state, name=name: state.pop(name) and None)

    def check_life(self) -> None:
        """End the life, so that another broker may look at its disk."""
        self.box.stop()

    def look(self, message: str) -> int:
        """Compare with what was answered; :returns: whether more is there."""
        self.box = self.start_again()
        users = decode_infos(UserInfo, self.accepted(self.ask(ROOT, RequestCode.AUTH_LIST_USER)))
        acls = decode_infos(AclInfo, self.accepted(self.ask(ROOT, RequestCode.AUTH_LIST_ACL)))
        resources = {acl.subject: tuple(
            entry.resource or "" for part in acl.policies or () for entry in part.entries or ())
            for acl in acls}
        state = {user.username or "": (user.password or "", resources.get(
            f"User:{user.username}", ())) for user in users}
        self.assertIn(state, (self.known, self.coming), msg=message)
        return state != self.known

    def test_kills(self) -> None:
        """The process ends."""
        self.killed_at_every_change()

    def test_losses_of_power(self) -> None:
        """The power ends."""
        self.cut_at_every_change()
