"""Turns pages into HTML by templates that escape every value."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from twistmq.console.page import Page
from twistmq.console.views import path_of
from twistmq.tools.admin import output

__all__ = ["Renderer", "StaticFile", "Visit", "static_files"]

_HERE: Final = Path(__file__).resolve().parent
_TYPES: Final = {".css": b"text/css; charset=utf-8", ".js": b"text/javascript; charset=utf-8",
                 ".svg": b"image/svg+xml", ".txt": b"text/plain; charset=utf-8"}
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_HASH_CHARS: Final = 12
#: The text for an unknown value: an en dash.
_UNKNOWN: Final = "\u2013"
#: The words, and not names, with which the texts of errors begin.
_FIRST_WORDS: Final = frozenset({
    "a", "group", "message", "no", "none", "queue", "select", "sort", "the", "there", "these",
    "topic", "type", "value"})
_MINUS: Final = "\u2212"
#: Where Apache's servers and clients send the reader of an error.
_SEE: Final = re.compile(r"[\s.]*\bSee https?://\S+ for further details\.?$")
#: The parts of the menu: the path and the text.
MENU: Final = (("", "Overview"), ("topics", "Topics"), ("groups", "Groups"),
               ("messages", "Messages"), ("dead-letters", "Dead letters"), ("traces", "Traces"),
               ("brokers", "Brokers"), ("doctor", "Doctor"))
#: The clock of a broker may be ahead of that of the console by this time, seconds.
_SKEW_S: Final = 60
#: The spans by which the age of a time is shown, seconds; the first one that is exceeded counts.
_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file for browsers."""

    content_type: bytes
    content: bytes

    @property
    def content_digest(self) -> str:
        """A text that changes with the content, so that browsers may keep a file for long."""
        return hashlib.sha256(self.content).hexdigest()[:_HASH_CHARS]


def static_files() -> dict[str, StaticFile]:
    """Return all files of the folder ``static`` by name; nothing else is ever served."""
    return {path.name: StaticFile(_TYPES[path.suffix], path.read_bytes())
            for path in sorted((_HERE / "static").iterdir()) if path.suffix in _TYPES}


@dataclass(frozen=True, slots=True)
class Visit:
    """The circumstances of one page that a browser sees.

    :param parts: the segments of the path.
    :param values: the parameters in the address.
    :param csrf: the text for forms; empty: the browser is not logged in.
    :param message: the result of the change before.
    :param account: the account of the visitor; empty: the console has a token.
    :param is_refused: whether the change before was refused.
    """

    parts: tuple[str, ...] = ()
    values: Mapping[str, str] = ()  # type: ignore[assignment]
    cluster: str = ""
    csrf: str = ""
    message: str = ""
    account: str = ""
    is_refused: bool = False


class Renderer:
    """The templates of a console.

    :param base: the path under which a reverse proxy publishes the console, such as "/console"; or
        an empty text.
    :param clusters: the names of all clusters.
    :param readonly: whether forms are left out.
    """

    def __init__(
        self, base: str, clusters: tuple[str, ...], files: Mapping[str, StaticFile], *,
        readonly: bool,
    ) -> None:
        self.base = base
        self._clusters = clusters
        self._static_paths = {name: f"{base}/static/{name}?v={file.content_digest}"
                              for name, file in files.items()}
        self._readonly = readonly
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True,
            undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False)
        self._environment.filters.update(
            number=number_text, rate=rate_text, bytes=bytes_text, time=time_text, age=age_text,
            sentence=sentence_text, json_pairs=json_pairs)
        self._environment.globals.update(
            base=base, clusters=clusters, readonly=readonly, menu=MENU, static=self.static_path)

    def compile_templates(self) -> None:
        """Compile all templates; otherwise each is compiled when it is first used."""
        for name in self._environment.list_templates():
            self._environment.get_template(name)

    def static_path(self, name: str) -> str:
        """Return the address of a file for browsers."""
        return self._static_paths[name]

    def as_html(self, page: Page, visit: Visit, *, is_part: bool = False) -> bytes:
        """Return the HTML of a page.

        :param is_part: whether only the block ``live`` of its template is made.
        """
        def link(*parts: str, **values: Any) -> str:
            return self.address(visit, parts, values)

        def here(**values: Any) -> str:
            # Another filter or order begins at the first page.
            return self.address(visit, visit.parts, {**visit.values, "page": "", **values})

        text = self._environment.get_template(f"{page.name}.html").render(
            page=page, visit=visit, link=link, here=here, now_s=time.time(),
            base_template="part.html" if is_part else "base.html")
        return text.encode("utf-8", "replace")

    def address(self, visit: Visit, parts: tuple[str, ...], values: Mapping[str, Any]) -> str:
        """Return an address in the cluster of a visit; parameters without a value are left out."""
        given = {name: str(value) for name, value in values.items()
                 if value not in (None, "") and name != "at"}
        if visit.cluster and visit.cluster != self._clusters[0]:
            given["at"] = visit.cluster
        return self.base + path_of(*parts) + (f"?{urlencode(given)}" if given else "")


def _is_known(value: float | None) -> TypeGuard[float]:
    """Return whether a number can be shown; a broker may report a rate that is not finite."""
    return value is not None and math.isfinite(value)


def number_text(value: float | None) -> str:
    """Return a whole number with separators between thousands."""
    return f"{int(value):,}".replace("-", _MINUS) if _is_known(value) else _UNKNOWN


def rate_text(value: float | None) -> str:
    """Return a rate with a precision that suits its size."""
    if not _is_known(value):
        return _UNKNOWN
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def bytes_text(value: float | None) -> str:
    """Return a size with a unit."""
    if not _is_known(value):
        return _UNKNOWN
    size = float(value)
    for unit in _UNITS:
        if abs(size) < 1000 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def time_text(at_ms: int | None) -> str:
    """Return a time in the time zone of the console, to the millisecond."""
    return output.time_text(at_ms, ".") if at_ms else _UNKNOWN


def sentence_text(text: str) -> str:
    """Return the text of an error as a sentence; a name at its beginning stays as it is.

    Errors are written for a line of a terminal, which begins with the name of the program. The
    address of a page of Apache's, which brokers add, is left out.
    """
    text = _SEE.sub("", text)
    if text.partition(" ")[0] in _FIRST_WORDS:
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?", ":")) or not text else f"{text}."


def json_pairs(text: object) -> list[tuple[str, str]]:
    """Return the members of a JSON object as texts, without those that are zero, false or null.

    :param text: anything else than the text of an object has no members.
    """
    if not isinstance(text, str) or not text.startswith("{"):
        return []
    try:
        members = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return []
    return [(name, _member_text(name, value)) for name, value in members.items() if value]


def _member_text(name: str, value: Any) -> str:
    if isinstance(value, int) and name.lower().endswith("timestamp"):
        return time_text(value)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def age_text(at_ms: int | None, now_s: float) -> str:
    """Return how long ago a time was, in its largest unit."""
    if not at_ms:
        return _UNKNOWN
    age_s = now_s - at_ms / 1000
    if age_s < -_SKEW_S:
        return "in the future"
    for seconds, unit in _SPANS:
        if age_s >= seconds:
            return f"{int(age_s // seconds)} {unit} ago"
    return "now" if age_s < 1 else f"{int(age_s)} s ago"
