"""Writes CODES.md, the page of every request code and who serves it, from the handler tables.

``python -m twistmq.broker.codes_page > broker/CODES.md`` makes it anew; a test holds the two
together.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.discovery import ENTRY_POINT_GROUP
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.name_server import PortlessNameServer

__all__ = ["codes_page"]

_HEAD = """\
# Codes

A request whose code nobody serves is answered REQUEST_CODE_NOT_SUPPORTED. "Not on VIP": the port
two below the main one does not serve it. Requests a broker sends to clients are served by nobody
here.

This page is written by `python -m twistmq.broker.codes_page` from `broker/codes.py` and the tables
of request handlers.

## Request codes

| code | name | served by |
| --- | --- | --- |
"""
_RESPONSES = """
## Response codes

| code | name |
| --- | --- |
"""


def _servers() -> dict[int, list[str]]:
    """Who serves a code: the name server, the broker's kernel, a stock plugin by name."""
    served: dict[int, list[str]] = {}
    for row in PortlessNameServer().handlers():
        served.setdefault(row.code, []).append("name server")
    kernel = KernelBox().kernel.handler_table()
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        if not point.value.startswith("twistmq."):
            continue
        box = KernelBox(plugins=[(point.name, import_module(point.module))])
        for code, row in box.kernel.handler_table().items():
            if code not in kernel:
                served.setdefault(code, []).append(
                    f"plugin `{point.name}`" + ("" if row.on_vip_port else ", not on VIP"))
    for code, row in kernel.items():
        served.setdefault(code, []).append("kernel" + ("" if row.on_vip_port else ", not on VIP"))
    return served


def codes_page() -> str:
    served = _servers()
    requests = [f"| {int(code)} | {code.name} | {'; '.join(served.get(code, ['']))} |"
                for code in RequestCode]
    responses = [f"| {int(code)} | {code.name} |" for code in ResponseCode]
    return _HEAD + "\n".join(requests) + "\n" + _RESPONSES + "\n".join(responses) + "\n"


if __name__ == "__main__":
    print(codes_page(), end="")
