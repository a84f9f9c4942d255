"""The addresses of the console: which function makes a page, and which one carries out a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from twistmq.console.broker_pages import brokers_page, overview_page
from twistmq.console.dead_letter_pages import (
    EXPORT_S,
    dead_letters_page,
    export_page,
    letters_page,
    resend_letters,
    resend_page,
)
from twistmq.console.doctor_page import doctor_page
from twistmq.console.doctor_runner import DOCTOR_S
from twistmq.console.group_pages import client_page, group_page, groups_page
from twistmq.console.message_pages import body_page, messages_page
from twistmq.console.page import Page
from twistmq.console.page_session import REPORT_S, PageSession
from twistmq.console.query import Query
from twistmq.console.reset_pages import reset_group, reset_page
from twistmq.console.tail_page import tail_page
from twistmq.console.topic_pages import change_topic, create_topic, topic_page, topics_page
from twistmq.console.trace_pages import trace_page, traces_page

__all__ = ["CHANGE_S", "VIEWS", "View", "find_view", "path_of"]

#: The time for a change, seconds; it is not shown before it has ended.
CHANGE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class View:
    """An address.

    :param path: its parts; a part in capitals is a parameter of this name in lower case.
    :param read: makes the page, on a worker thread.
    :param change: carries out a form and returns a sentence about it; None: the page has no form.
    :param extra_s: the time that the page may take in addition to the usual one, seconds.
    :param is_live: whether browsers refresh a part of the page, the block ``live`` of its template.
    """

    path: tuple[str, ...]
    read: Callable[[PageSession, Query], Page]
    change: Callable[[PageSession, Query], str] | None = None
    extra_s: float = 0.0
    is_live: bool = False


VIEWS: Final = (
    View((), overview_page, is_live=True),
    View(("brokers",), brokers_page, is_live=True),
    View(("topics",), topics_page, create_topic, is_live=True),
    View(("topics", "TOPIC"), topic_page, change_topic, is_live=True),
    View(("groups",), groups_page, is_live=True),
    View(("groups", "GROUP"), group_page, is_live=True),
    View(("messages",), messages_page, extra_s=REPORT_S),
    View(("messages", "body"), body_page, extra_s=REPORT_S),
    View(("tail",), tail_page),
    View(("groups", "GROUP", "clients", "CLIENT"), client_page, extra_s=REPORT_S),
    View(("groups", "GROUP", "reset"), reset_page, reset_group, extra_s=REPORT_S),
    View(("doctor",), doctor_page, extra_s=DOCTOR_S),
    View(("traces",), traces_page, extra_s=REPORT_S),
    View(("traces", "ID"), trace_page, extra_s=REPORT_S),
    View(("dead-letters",), dead_letters_page, is_live=True),
    View(("dead-letters", "GROUP"), letters_page, extra_s=REPORT_S),
    View(("dead-letters", "GROUP", "resend"), resend_page, resend_letters, extra_s=REPORT_S),
    View(("dead-letters", "GROUP", "export"), export_page, extra_s=EXPORT_S),
)


def find_view(parts: list[str]) -> tuple[View, dict[str, str]] | None:
    """Return the view of an address with the parameters in its path; or None."""
    for view in VIEWS:
        if len(view.path) == len(parts) and all(
                (name.isupper() and text) or name == text
                for name, text in zip(view.path, parts, strict=True)):
            return view, {name.lower(): text for name, text in zip(view.path, parts, strict=True)
                          if name.isupper()}
    return None


def path_of(*parts: str) -> str:
    """Return the path of an address; each part is one segment, whatever characters it has."""
    return "/" + "/".join(quote(part, safe="") for part in parts)
