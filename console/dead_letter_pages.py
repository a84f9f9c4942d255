"""The pages of dead letters: the groups with dead letters, the letters of one group, and a resend.

The list of groups needs one request for each master, and one for each dead-letter topic on it.
"""

from __future__ import annotations

from typing import Final

from twistmq.console.body_decoder import body_preview, decode_body
from twistmq.console.dead_letters import (
    DESTINATIONS,
    Letter,
    LetterReader,
    Outcome,
    Position,
    cut_lines,
    destination_topic,
    letter_line,
    origin_topic,
    read_letters,
    send_letter,
)
from twistmq.console.page import Cell, Column, Download, Page, Table
from twistmq.console.page_session import PageSession
from twistmq.console.query import BadQuery, Query, cut_table
from twistmq.console.queue_offsets import offsets_text, read_offsets
from twistmq.console.spent_forms import form_id
from twistmq.console.topic_pages import begin_topics
from twistmq.protocol.bodies import ConsumeType
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.properties import KEYS, TAGS
from twistmq.protocol.topic_names import DLQ_GROUP_TOPIC_PREFIX, dlq_topic
from twistmq.tools.admin.clients import connected_clients
from twistmq.tools.admin.records import message_id_of
from twistmq.tools.admin.session import Broker
from twistmq.tools.admin.topics import topic_stats

__all__ = ["EXPORT_S", "dead_letters_page", "export_page", "letters_page", "resend_letters",
           "resend_page"]

_GROUPS: Final = (
    Column("group", "letters"), Column("dead_letters", "number"), Column("newest", "time"),
    Column("brokers", "list"))
_LETTERS: Final = (
    Column("select", "select"), Column("message", "code"), Column("stored", "time"),
    Column("topic", "topic"), Column("tag", "code"), Column("keys", "code"),
    Column("attempts", "number"), Column("bytes", "bytes", "Size"), Column("body", "code"))
_PREVIEW: Final = (
    Column("message", "code"), Column("stored", "time"), Column("keys", "code"),
    Column("topic", "topic", "From the topic"), Column("sent_to", "code"),
    Column("bytes", "bytes", "Size"))
#: The groups whose letters are counted.
COUNTED_MAX: Final = 500
#: The letters on a page: as a default, and at most. As many may be selected, because the address of
#: the preview has to fit into the first line of a request.
_COUNT: Final = 50
COUNT_MAX: Final = 200
#: The bytes of bodies that a page reads from a queue.
PAGE_BYTES_MAX: Final = 16 * 1024 * 1024
#: The letters and bytes of an export, and the additional time that it may take, seconds.
EXPORT_MAX: Final = 10_000
EXPORT_BYTES_MAX: Final = 32 * 1024 * 1024
EXPORT_S: Final = 13.0
#: A resend stops this long before its deadline, so that its outcomes are shown, seconds.
_SPARE_S: Final = 2.5


def dead_letters_page(session: PageSession, query: Query) -> Page:
    """List the groups with dead letters; see :func:`cut_table`."""
    needle = query.text("q").lower()
    masters = session.brokers()
    topics: dict[Broker, list[str]] = {}
    for broker, configs in begin_topics(session, masters).collect():
        topics[broker] = sorted(name for name in configs if name.startswith(DLQ_GROUP_TOPIC_PREFIX)
                                and needle in name.removeprefix(DLQ_GROUP_TOPIC_PREFIX).lower())
    all_names = sorted({name for each in topics.values() for name in each})
    counted = set(all_names[:COUNTED_MAX])

    def count(broker: Broker) -> dict[str, tuple[int, int]]:
        numbers = {}
        for name in topics[broker]:
            if name in counted:
                bounds = topic_stats(session, broker, name).offset_table.values()
                numbers[name] = (sum(each.max_offset - each.min_offset for each in bounds),
                                 max((each.last_update_timestamp for each in bounds), default=0))
        return numbers

    sums: dict[str, tuple[int, int, list[str]]] = {}
    for broker, numbers in session.begin(topics, count).collect():
        for name, (number, newest_ms) in numbers.items():
            if number:
                total, last_ms, names = sums.get(name, (0, 0, []))
                sums[name] = total + number, max(last_ms, newest_ms), [*names, broker.name]
    rows: list[tuple[Cell, ...]] = [
        (name.removeprefix(DLQ_GROUP_TOPIC_PREFIX), total, newest_ms or None, sorted(names))
        for name, (total, newest_ms, names) in sums.items()]
    table = Table(_GROUPS, rows, empty=(
        "No group has dead letters. A message gets here when the last attempt of a group to "
        "consume it has failed, which is attempt 17 unless retryMaxTimes of the group is set."))
    cut_table(table, query, sort="-newest")
    page = Page("dead-letters", "Dead letters", {"groups": table}, {
        "dead_letters": sum(total for total, _, _ in sums.values()), "groups": len(sums)})
    if len(all_names) > COUNTED_MAX:
        page.notes.append(f"Only {COUNTED_MAX} of {len(all_names)} groups with a dead-letter topic "
                          "are counted: enter a part of the name.")
    return page


def letters_page(session: PageSession, query: Query) -> Page:
    """Show the newest dead letters of a group.

    ``count`` is their number, and ``older`` the fact of this name of the page with newer ones.
    """
    group = query.required_text("group")
    count = query.number("count", _COUNT, 1, COUNT_MAX)
    mark = query.text("older")
    result = read_letters(session, group, count, PAGE_BYTES_MAX,
                          ends=read_offsets(mark, "older") if mark else None)
    table = Table(_LETTERS, [_row(each) for each in result.letters], empty=(
        "There are no older dead letters." if mark else
        f"The group {group} has no dead letters. Messages get here when their last attempt has "
        "failed, and they leave when they are as old as the broker keeps messages."))
    page = Page("letters", group, {"letters": table})
    page.facts = {"group": group, "topic": dlq_topic(group), "dead_letters": result.total,
                  "count": count, "older": offsets_text(result.ends), "export_max": EXPORT_MAX}
    return page


def _row(letter: Letter) -> tuple[Cell, ...]:
    message, properties = letter.message, letter.message.properties_map()
    body = decode_body(message)
    return (letter.position.text, message_id_of(message), message.store_timestamp,
            origin_topic(message) or None, properties.get(TAGS), properties.get(KEYS),
            message.reconsume_times, body.size, body_preview(body))


# --- sending again


def _selection(query: Query) -> list[Position]:
    texts = query.all_texts("select")
    if len(texts) > COUNT_MAX:
        raise BadQuery(f"select names more than {COUNT_MAX} messages")
    return [Position.from_text(text) for text in texts]


def resend_page(session: PageSession, query: Query) -> Page:
    """Show the effect of a resend before it happens.

    ``select`` names a message as BROKER:QUEUE:OFFSET in the dead-letter topic and may occur several
    times; ``to`` is one of ``DESTINATIONS``.
    """
    group = query.required_text("group")
    destination = query.one_of("to", DESTINATIONS)
    positions = _selection(query)
    all_clients = session.begin(
        session.brokers(), lambda broker: connected_clients(session, broker.address, group))
    rows: list[tuple[Cell, ...]] = []
    existing: list[Position] = []
    missing: list[Position] = []
    reader = LetterReader(session, group)
    for position in positions:
        letter = reader.read_letter(position)
        if letter is None:
            missing.append(position)
            continue
        existing.append(position)
        message = letter.message
        rows.append((message_id_of(message), message.store_timestamp,
                     message.properties_map().get(KEYS), origin_topic(message) or None,
                     destination_topic(group, message, destination) or None, len(message.body)))
    clients: set[str] = set()
    is_popping = False
    for _, answer in all_clients.collect():
        clients |= {each.client_id or "" for each in answer.connection_set}
        is_popping = is_popping or answer.consume_type == ConsumeType.CONSUME_POP
    page = Page("resend", group, {"letters": Table(
        _PREVIEW, rows, empty="No message is selected: go back and select some.")})
    page.facts = {
        "group": group, "to": destination, "destinations": list(DESTINATIONS),
        "count": len(existing), "clients": len(clients), "is_popping": is_popping,
        "select": [each.text for each in existing], "once": form_id()}
    if missing:
        page.notes.append(f"{len(missing)} of the selected messages have expired: "
                          + ", ".join(each.text for each in missing[:5]))
    return page


def resend_letters(session: PageSession, form: Query) -> str:
    """Send dead letters again; :returns: a line with the result, and a line for each message.

    :raises BadQuery: when nothing is selected, or the form was already carried out.
    """
    group = form.required_text("group")
    destination = form.one_of("to", DESTINATIONS)
    positions = _selection(form)
    if not positions:
        raise BadQuery("no message is selected")
    reader = LetterReader(session, group)
    if not session.spent_forms.accept_once(form.text("once")):
        raise BadQuery("these messages were already sent again by this form")
    outcomes = [_resend(session, group, reader, position, destination) for position in positions]
    sent = sum(bool(each.sent_to) for each in outcomes)
    return "\n".join([f"{sent} of {len(positions)} dead letters of {group} were sent again.",
                      *(each.text for each in outcomes)])


def _resend(
    session: PageSession, group: str, reader: LetterReader, position: Position, destination: str
) -> Outcome:
    """Send one letter; a failure does not keep the next ones from being sent."""
    if session.remaining_s < _SPARE_S:
        return Outcome(position.text, fault="the time of the form was over")
    try:
        letter = reader.read_letter(position)
    except BrokerError as error:
        return Outcome(position.text, fault=f"it could not be read: {error}")
    if letter is None:
        return Outcome(position.text, fault="there is no such message any more")
    return send_letter(session, group, letter, destination)


def export_page(session: PageSession, query: Query) -> Page:
    """Return the newest dead letters of a group as lines of JSON, the oldest of them first."""
    group = query.required_text("group")
    count = query.number("count", EXPORT_MAX, 1, EXPORT_MAX)
    result = read_letters(session, group, count, EXPORT_BYTES_MAX)
    content, number = cut_lines(
        result.letters, lambda each: letter_line(group, each), 2 * EXPORT_BYTES_MAX)
    is_whole = not result.ends and number == len(result.letters)
    page = Page("export", group, facts={
        "group": group, "count": number, "dead_letters": result.total, "is_whole": is_whole})
    page.file = Download(f"dead-letters-{group}{'' if is_whole else f'-newest-{number}'}.jsonl",
                         content)
    return page
