"""The attack on a broker with ACL 2.0: every served code is sent by users without permissions.

    python -m tests.acl.attack

prints the table of ACCEPTANCE.md.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Final, NamedTuple

from tests.acl.auth_box import ALICE, ROOT, SETTINGS, ask_fields
from tests.acl.test_access_table import body, served
from twistmq.acl import auth
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import admin
from twistmq.protocol.bodies import UserInfo
from twistmq.protocol.codes import ResponseCode

__all__ = ["ATTACKERS", "IDLE", "LET_IN", "Attacker", "add_users", "attack_page", "attempts"]

IDLE: Final = ("idle", "secret-of-idle")
#: Fields that name the topic B and the group GB in every header.
FIELDS: Final = {
    "topic": "B", "b": "B", "a": "P", "producerGroup": "P", "consumerGroup": "GB", "group": "GB",
    "groupName": "GB", "srcGroup": "GB", "destGroup": "GB", "compareGroup": "GB",
    "username": "alice", "subject": "User:alice"}
_BODIES: Final = {18: b'{"topicConfigList":[{"topicName":"B"}]}', 200: b'{"groupName":"GB"}',
                  225: b'{"groupConfigList":[{"groupName":"GB"}]}', 25: b"fileReservedTime=1"}
#: Codes that a user without policies may send, and why they neither show nor change other users'
#: data.
LET_IN: Final = {
    33: "the stored message decides, but it does not exist",
    37: "the half message decides, but it does not exist",
    305: "the answer has the topics of the system alone",
    324: "a reply message for a client that does not exist",
    325: "the same",
}


class Attacker(NamedTuple):
    """A client that sends every code.

    :param keys: None: the requests are not signed.
    :param refusal: a part of each refusal.
    """

    name: str
    keys: tuple[str, str] | None
    refusal: str


ATTACKERS: Final = (
    Attacker("a stranger without a name", None, "username cannot be null."),
    Attacker("an empty name", ("", ""), "username cannot be null."),
    Attacker("an unknown user", ("unknown", "secret"), "User:unknown is not found."),
    Attacker("a user with a wrong password", ("alice", "wrong"), "check signature failed."),
    Attacker("the super user with a wrong password", ("root", "wrong"), "check signature failed."),
    Attacker("the super user with the password NUL", ("root", "\0"), "check signature failed."),
    Attacker("a disabled user", IDLE, "User:idle is disabled."),
    Attacker("a user without policies", ALICE, "User:alice has no permission to access "),
)


def add_users(box: KernelBox) -> None:
    """Create the disabled user."""
    for code, user in ((3001, UserInfo(password=IDLE[1])), (3002, UserInfo(user_status="disable"))):
        reply = ask_fields(box, ROOT, code, {"username": IDLE[0]}, user.encode())
        assert reply.code == ResponseCode.SUCCESS, reply


@cache
def _codes() -> list[int]:
    return sorted(served())


def attempts(box: KernelBox, keys: tuple[str, str] | None) -> dict[int, str | None]:
    """Send every code that some plugin serves.

    :returns: by code, the text of the refusal; None: the request was not refused.
    """
    texts: dict[int, str | None] = {}
    for code in _codes():
        reply = ask_fields(box, keys, code, FIELDS, _BODIES.get(code) or body(code))
        is_refused = reply.code == ResponseCode.NO_PERMISSION
        texts[code] = (reply.remark or "") if is_refused else None
    return texts


def attack_page(box: KernelBox) -> str:
    """Return the table of all attackers."""
    rows = ["| who sends every code | refused | with the text | not refused |",
            "| --- | --- | --- | --- |"]
    for attacker in ATTACKERS:
        texts = attempts(box, attacker.keys)
        refused = Counter(text for text in texts.values() if text is not None)
        assert all(attacker.refusal in text for text in refused), refused
        passed = ", ".join(str(code) for code, text in texts.items() if text is None)
        rows.append(f"| {attacker.name} | {sum(refused.values())} of {len(texts)} | "
                    f"{attacker.refusal.strip()} | {passed or 'none'} |")
    rows += ["", "| not refused to a user without policies | because |", "| --- | --- |",
             *(f"| {code} | {reason} |" for code, reason in LET_IN.items())]
    return "\n".join(rows) + "\n"


def main() -> None:
    """Print the table."""
    box = KernelBox([("auth", auth.Plugin), ("admin", admin.Plugin)], SETTINGS)
    try:
        ask_fields(box, ROOT, 3001, {"username": ALICE[0]}, UserInfo(password=ALICE[1]).encode())
        add_users(box)
        print(attack_page(box), end="")
    finally:
        box.stop()


if __name__ == "__main__":
    main()
