"""Writes CODES.md, the page of every request code: its handler or why it is not served, its test.

``python -m twistmq.tools.pages.codes_page > broker/CODES.md`` in a checkout writes it again:
the tests are named by ``tests/code_tests.py`` there. A test holds them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points

from twistmq.broker.constants import BODY_SIZE_MAX, HEADER_SIZE_MAX
from twistmq.broker.plugin.discovery import ENTRY_POINT_GROUP
from twistmq.broker.remoting.messages import AnyHandler
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.name_server import PortlessNameServer
from twistmq.protocol.codes import REFUSED, RequestCode, ResponseCode

__all__ = ["codes_page", "servers"]

_HEAD = """\
# Codes

A request whose code is not served is refused with REQUEST_CODE_NOT_SUPPORTED, and the reason that
stands here. "Not on VIP": the port two below the main one does not serve it. A header of over
64 KiB, or a body, is refused with INVALID_PARAMETER, of a send with MESSAGE_ILLEGAL, where no other
bound stands here.

This page is written by `python -m twistmq.tools.pages.codes_page` from `protocol/codes.py`, the
tables of request handlers, and `tests/code_tests.py`; paths of tests are below `tests`.

## Request codes

| code | name | served by | shown by |
| --- | --- | --- | --- |
"""
_RESPONSES = """
## Response codes

| code | name |
| --- | --- |
"""


def servers() -> dict[int, list[str]]:
    """The servers of each code: the name server, the broker's kernel, stock plugins by name."""
    served: dict[int, list[str]] = {}
    for row in PortlessNameServer().handlers():
        served.setdefault(row.code, []).append("name server" + _bounds(row))
    kernel = KernelBox().kernel.handler_table()
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        if not point.value.startswith("twistmq."):
            continue
        box = KernelBox(plugins=[(point.name, point.load())])
        for code, row in box.kernel.handler_table().items():
            if code not in kernel:
                served.setdefault(code, []).append(
                    f"plugin `{point.name}`" + _port(row) + _bounds(row))
    for code, row in kernel.items():
        served.setdefault(code, []).append("kernel" + _port(row) + _bounds(row))
    return served


def _port(row: AnyHandler) -> str:
    return "" if row.on_vip_port else ", not on VIP"


def _bounds(row: AnyHandler) -> str:
    return "".join(f", {part} to {size // 1024} KiB" for part, size, usual in (
        ("header", row.header_size_max, HEADER_SIZE_MAX),
        ("body", row.body_size_max, BODY_SIZE_MAX)) if size != usual)


def _refusal(code: RequestCode) -> str:
    reason = REFUSED.get(code)
    return f"refused: {reason}" if reason else "refused"


def codes_page(tests: Mapping[int, str]) -> str:
    """The page.

    :param tests: the tests that show how a code is answered, by code.
    """
    served = servers()
    requests = [f"| {int(code)} | {code.name} | "
                f"{'; '.join(served.get(code, [_refusal(code)]))} | `{tests[code]}` |"
                for code in RequestCode]
    responses = [f"| {int(code)} | {code.name} |" for code in ResponseCode]
    return _HEAD + "\n".join(requests) + "\n" + _RESPONSES + "\n".join(responses) + "\n"


if __name__ == "__main__":
    print(import_module("tests.code_tests").page(), end="")
