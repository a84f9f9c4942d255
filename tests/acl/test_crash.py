"""Users and policies after an end of the process, or a loss of power, at every change of the disk.

A change that was answered is complete after the next start. A change without an answer is complete
or missing.
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

#: The password and the resources of each user.
State = dict[str, tuple[str, tuple[str, ...]]]


class CrashTests(AuthTestCase, EveryChangeCase):
    """The life ends at every change of the disk."""

    told = ("known", "coming")

    def setUp(self) -> None:
        EveryChangeCase.setUp(self)

    def begin(self) -> None:
        """Make a new store."""
        self.disk = PowerLossDisk()
        self.box = self.start_again()
        #: The state that was answered, and the state after the answer to the current request.
        self.known: State = {"root": (ROOT[1], ())}
        self.coming = self.known

    def start_again(self) -> KernelBox:
        return KernelBox([("auth", auth.Plugin)], self.settings, self.disk)

    def change(
        self, code: int, header: CommandHeader, body: bytes, change: Callable[[State], None]
    ) -> None:
        """Send a request, which is answered if the disk works."""
        self.coming = dict(self.known)
        change(self.coming)
        self.accepted(self.ask(ROOT, code, header, body))
        self.known = self.coming

    def live(self) -> None:
        """Make each kind of change several times."""
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
        """End the life, so that another broker can read its disk."""
        self.box.stop()

    def look(self, message: str) -> int:
        """Compare the tables with the answered state; :returns: whether the current change is there
        too.
        """
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
        """The power fails."""
        self.cut_at_every_change()
