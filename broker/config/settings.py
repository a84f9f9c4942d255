"""Settings: what a row declares, and the values of one run.

Every setting is one :class:`Setting` row: from it come parsing, the checks, ``-p`` and the table in
SETTINGS.md. The rows are in ``setting_rows``; a plugin adds its own through ``register_settings``.
Names and defaults are Apache's, so a ``broker.conf`` written for Apache's broker works; settings
of ours have a dot in their names. The command line wins over the file, the file over defaults. A
broker of several has a second file, which wins over the one that all of them read.

Further rules of a start are :class:`SettingCheck` objects. A start, the doctor and a change by a
tool run the same ones.

A key that no row declares is kept and named in one warning. Differs from Apache: a value of the
wrong type or out of bounds stops the start instead of being skipped in silence, because a typing
error in ``flushDiskType`` must not cost messages.

Source: MixAll.properties2Object, Configuration, BrokerStartup, NamesrvStartup @5.3.3.
"""

from __future__ import annotations

import builtins
import copy
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final, Literal, Self

from twistmq.broker.config.apache_settings import UNREAD
from twistmq.broker.config.properties_file import decode_properties, parse_properties, with_changes
from twistmq.broker.errors import SettingsError, SettingUnavailable
from twistmq.broker.store.regular_file import NEW_FILE, named_kind, open_regular, read_named
from twistmq.broker.store.settings import WHOLE_ENTRIES, StoreSettingFault, StoreSettings

__all__ = ["INT_MAX", "LONG_MAX", "OWN_FILE", "OfEach", "Setting", "SettingCheck", "SettingKind",
           "SettingValue", "Settings", "similar_name"]

#: The greatest values of Java's int and long.
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

SettingValue = bool | int | float | str | tuple[str, ...]
#: ``path`` is a text in which ``~`` is the home directory; ``names`` are separated by commas.
SettingKind = Literal["int", "float", "flag", "text", "path", "names"]
#: How the values of several brokers of one command differ; see :class:`Setting`.
OfEach = Literal["", "name", "port", "folder", "inner_port", "inner_host", "above_store",
                 "own_file", "one_broker"]

#: The setting that names a broker's own file.
OWN_FILE: Final = "settings.own_file"
COMMAND_LINE: Final = "command line"
UPDATE: Final = "update"
#: How alike an unknown name and a setting's must be for a slip, 0.0 to 1.0.
_SLIP: Final = 0.9
#: Shown in place of a secret.
_SECRET: Final = "******"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    :param name: with a dot in it, such as "mine.rate"; names without one are Apache's.
    :param kind: "int", "float", "flag" (true or false), "text", "path" (``~`` is the home folder)
        or "names" (texts separated by commas); ``broker.settings`` has a method of the same name
        for each but "float" (``number``) and "path" (``text``).
    :param default: the value when none is given; a function is called once, at load.
    :param help: one sentence; for the reader of SETTINGS.md.
    :param unit: of a number: "ms", "bytes", ...
    :param least: the smallest number allowed.
    :param most: the greatest number allowed.
    :param choices: the only texts allowed; empty: any.
    :param source: the Apache class that has it; empty for a name with a dot.
    :param important: whether ``-m`` prints it.
    :param default_text: what the table says in place of a computed default.
    :param at_start: whether it is read at the start only, so that a change holds from the next
        one on; else what reads it asks each time, or listens for changes.
    :param is_fixed: whether no tool may change it, whatever a black list says.
    :param is_secret: whether its value is never shown.
    :param provides: values of other settings that have a meaning where this one is declared, as
        "NAME=VALUE": ``brokerRole=SLAVE`` is refused unless a plugin's setting provides it.
    :param of_each: how the value differs where one command runs several brokers. "name": with the
        broker's number behind it; "port": 10 higher for each; "folder": a folder below it, with the
        broker's name; "inner_port", "inner_host": of pages that the supervisor asks and serves in
        the brokers' place; "above_store": all have the same, where it is empty the folder above
        storePathRootDir of the command; "own_file": a file in the folder of its store;
        "one_broker": it is refused with more than one, since all would have the same. Empty: all
        have the same.
    :param only_with: the value of another setting, as "NAME=VALUE", without which nothing reads
        this one: a port that is not listened on meets no other.
    """

    name: str
    kind: SettingKind
    default: SettingValue | Callable[[], SettingValue]
    help: str
    unit: str = ""
    least: float = 0
    most: float = INT_MAX
    choices: tuple[str, ...] = ()
    source: str = ""
    important: bool = False
    default_text: str = ""
    at_start: bool = False
    is_fixed: bool = False
    is_secret: bool = False
    provides: tuple[str, ...] = ()
    of_each: OfEach = ""
    only_with: str = ""

    def default_value(self) -> SettingValue:
        value = self.default() if callable(self.default) else self.default
        if self.kind == "path":
            assert isinstance(value, str), self.name
            return os.path.expanduser(value)
        return value

    def parse(self, text: str, place: str) -> SettingValue:
        """The value a text stands for.

        :param place: where the text comes from, for the error.
        :raises SettingsError: when it stands for none, or for one out of bounds.
        """
        text = text.strip()
        try:
            value = _PARSERS[self.kind](text)
        except ValueError:
            raise self.error(text, place, f"is not {_KIND_NAMES[self.kind]}") from None
        if self.choices and value not in self.choices:
            raise self.error(text, place, f"is not one of {', '.join(self.choices)}")
        if self.kind in ("int", "float"):
            assert isinstance(value, (int, float))
            if not self.least <= value <= self.most:
                raise self.error(text, place, f"is not from {self.least} to {self.most}")
        return value

    def error(self, text: str, place: str, why: str) -> SettingsError:
        return SettingsError(f"{self.name}={text} ({place}): the value {why}")


@dataclass(frozen=True, slots=True)
class SettingCheck:
    """A rule of a start about settings, beyond the validity of each value by itself.

    :param names: the settings that it looks at; a tool's change of any of them is checked by it.
    :param run: raises SettingsError or BrokerError when a start with the settings would fail. It
        must not wait: a tool's change is checked on the reactor.
    :param part: the part of ``twistmq doctor`` that tells more of the same; empty: none does.
    """

    names: tuple[str, ...]
    run: Callable[[Settings], object]
    part: str = ""


def _whole(text: str) -> int:
    if not re.fullmatch("[+-]?[0-9]+", text):
        raise ValueError(text)
    return int(text)


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


_PARSERS: Final[dict[str, Callable[[str], SettingValue]]] = {
    "int": _whole, "float": float, "flag": _flag, "text": str, "path": os.path.expanduser,
    "names": _names,
}
_KIND_NAMES: Final = {"int": "a whole number", "float": "a number", "flag": "true or false"}


def setting_text(value: SettingValue) -> str:
    """A value as a properties file holds it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


class Settings:
    """The values of one run.

    :param rows: the settings there are; of two rows with one name the later is used.
    """

    def __init__(self, rows: Iterable[Setting]) -> None:
        self._rows: dict[str, Setting] = {}
        self._values: dict[str, SettingValue] = {}
        #: Values that hold from the next start on.
        self._pending: dict[str, SettingValue] = {}
        #: Texts given for keys no row declares, with their places.
        self._unknown: dict[str, tuple[str, str]] = {}
        self._given: set[str] = set()
        #: Where the texts of known settings come from.
        self._places: dict[str, str] = {}
        #: The file that :meth:`save` changes; None: nothing is saved.
        self.file: str | None = None
        #: Whether the next start by the same command reads that file.
        self.is_file_read = False
        #: Settings that the command line gives.
        self._overridden: frozenset[str] = frozenset()
        #: Rules of a start that do not depend on plugins.
        self.checks: list[SettingCheck] = []
        #: Further rules: about the host, and of the plugins in use.
        self.start_checks: list[SettingCheck] = []
        #: Gives settings the defaults that follow from others.
        self.derive: Callable[[Settings], None] | None = None
        #: Of what the next start would find: the settings of the process that runs. None: these are
        #: those of a start.
        self.running: Settings | None = None
        #: Called after :meth:`update` with what changed.
        self.on_change: list[Callable[[Mapping[str, SettingValue]], None]] = []
        self.add_rows(rows)
        #: The rows it was made with; those of plugins come later.
        self.own_rows = tuple(self._rows.values())

    @classmethod
    def load(
        cls,
        rows: Iterable[Setting],
        file: str | os.PathLike[str] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Settings:
        """Defaults, then a file, then the broker's own, then what the command line gave.

        The own file may be there only since a tool changed a setting.

        :raises SettingsError: when a file cannot be read or a value has no meaning.
        """
        settings = cls(rows)
        overrides = overrides or {}
        if file is not None:
            settings._take_file(os.fspath(file))
        if settings.has(OWN_FILE):
            if OWN_FILE in overrides:
                settings._take(OWN_FILE, overrides[OWN_FILE], COMMAND_LINE)
            if own := settings.text(OWN_FILE):
                settings._take_file(own, is_optional=True)
        settings._overridden = frozenset(overrides)
        for name, value in overrides.items():
            settings._take(name, value, COMMAND_LINE)
        return settings

    def _take_file(self, file: str, *, is_optional: bool = False) -> None:
        """Read a file; changes are saved in the last one that is read.

        :param is_optional: whether it need not be there yet.
        """
        self.file = file
        self.is_file_read = True
        if is_optional and not os.path.exists(file):
            return
        text, _ = _read(file)
        for entry in parse_properties(text, file):
            self._take(entry.key, entry.value, f"{file}:{entry.first}")

    def add_rows(self, rows: Iterable[Setting]) -> None:
        """Declare more settings; a text kept for one of them is parsed now.

        :raises SettingsError: when such a text is not valid.
        """
        for row in rows:
            self._rows[row.name] = row
            if row.name not in self._given:
                self._values[row.name] = row.default_value()
            if row.name in self._unknown:
                self._take(row.name, *self._unknown.pop(row.name))

    def _take(self, name: str, text: str, place: str) -> None:
        row = self._rows.get(name)
        if row is None:
            self._unknown[name] = (text, place)
            return
        self._values[name] = row.parse(text, place)
        self._places[name] = place
        self._given.add(name)

    @property
    def unknown(self) -> dict[str, str]:
        """Texts of keys that no row declares."""
        return {name: text for name, (text, _) in self._unknown.items()}

    @property
    def rows(self) -> list[Setting]:
        return list(self._rows.values())

    def row(self, name: str) -> Setting:
        """The row that declares a setting."""
        return self._rows[name]

    def is_given(self, name: str) -> bool:
        """Whether a setting has its value from the file, the command line or :meth:`put`."""
        return name in self._given

    def is_read_back(self, name: str) -> bool:
        """Whether the next start by the same command has the value that :meth:`save` writes."""
        return self.file is not None and self.is_file_read and name not in self._overridden

    def put(self, name: str, value: SettingValue) -> None:
        """Set a declared setting for this run; :meth:`save` does not write it."""
        assert name in self._rows, name
        self._values[name] = value
        self._given.add(name)

    def put_from(self, other: Settings, name: str) -> None:
        """Set a declared setting as another run's has it: given or not, from the same place."""
        if other.is_given(name):
            self.put(name, other.value(name))
            self._places[name] = other._places.get(name, "default")
        else:
            self.put_default(name, other.value(name))

    def put_default(self, name: str, value: SettingValue) -> None:
        """Give a setting another default for this run."""
        if name not in self._given:
            assert name in self._rows, name
            self._values[name] = value

    def update(
        self, changes: Mapping[str, str], *, save: bool = False
    ) -> dict[str, SettingValue]:
        """Change settings while running: all of them, or none when one has no meaning.

        Those that are read at the start only keep the value they have; tools and the file are
        told the new one. So are those that Apache's broker has and nothing here reads, and what
        the file has for another program. Differs from Apache, which ignores a key that it does not
        know, and answers that it was set.

        :param save: write them to the file as well.
        :returns: the settings that have another value now.
        :raises SettingsError: when a name or value has no meaning, no tool may change it, the next
            start would fail with it, or the file cannot be written.
        :raises BrokerError: when the next start would fail with it, for what there is on the host.
        """
        for name in changes:
            if name in self._rows and self._rows[name].is_fixed:
                raise SettingsError(f"{name}: it is read at the start only, a tool cannot change "
                                    "it")
            if not self._is_known(name):
                guess = similar_name(name, self._rows)
                raise SettingsError(f"{name}: there is no such setting"
                                    + (f", did you mean {guess}?" if guess else ""))
        wanted = {name: self._rows[name].parse(text, UPDATE)
                  for name, text in changes.items() if name in self._rows}
        after = self._at_next_start(wanted, changes)
        # A default that is given may mean something else: plugins.enabled= means no plugins.
        after.check({name for name in changes if name not in self._given
                     or after._accepted(name) != self._accepted(name)})
        if save:
            after.save(changes)
        changed = {name: value for name, value in wanted.items()
                   if not self._rows[name].at_start and value != self._values[name]}
        self._values.update(changed)
        self._pending = {name: value for name, value in after._values.items()
                         if value != self._values[name]}
        self._unknown, self._places = after._unknown, after._places
        self._given = after._given
        if changed:
            for listener in self.on_change:
                listener(changed)
        return changed

    def _at_next_start(
        self, wanted: Mapping[str, SettingValue], changes: Mapping[str, str]
    ) -> Settings:
        """A copy, with changes, as the next start finds it."""
        after = copy.copy(self)
        after.running = self
        after._values = {**self._values, **self._pending, **wanted}
        after._pending = {}
        after._given = {*self._given, *wanted}
        after._places = {**self._places, **dict.fromkeys(wanted, UPDATE)}
        after._unknown = {**self._unknown, **{name: (text, UPDATE)
                                              for name, text in changes.items()
                                              if name not in self._rows}}
        if self.derive is not None:
            self.derive(after)
        return after

    def _is_known(self, name: str) -> bool:
        """Whether a tool may set it: a setting, one of Apache's, one of another program's."""
        return name in self._rows or name in self._unknown or name in UNREAD

    def _accepted(self, name: str) -> SettingValue | None:
        """The value that the next start would find, as far as it is known."""
        if name in self._unknown:
            return self._unknown[name][0]
        return self._pending.get(name, self._values.get(name))

    def is_new(self, name: str) -> bool:
        """Whether a start has yet to show that it can use the value."""
        return self.running is None or self._accepted(name) != self.running._accepted(name)

    def check(self, changed: Collection[str] | None = None) -> None:
        """Make the checks of a start.

        :param changed: only those that look at one of these; None: all.
        :raises SettingsError, BrokerError: the first that one raises.
        """
        for check in (*self.checks, *self.start_checks):
            if changed is None or not check.names or not set(check.names).isdisjoint(changed):
                check.run(self)

    def without_plugins(self) -> Self:
        """A copy as a start reads it before any plugin has declared its settings."""
        again = type(self)(self.own_rows)
        again.running, again.checks, again.file = self.running, self.checks, self.file
        again.is_file_read, again._overridden = self.is_file_read, self._overridden
        own = {row.name for row in self.own_rows}
        again._values = {name: value for name, value in self._values.items() if name in own}
        again._places = self._places
        again._given = self._given & own
        # A plugin's setting is a text until the plugin declares it.
        again._unknown = {**self._unknown, **{
            name: (setting_text(self._values[name]), self._places.get(name, UPDATE))
            for name in self._given - own}}
        return again

    def pending(self, names: Iterable[str]) -> list[str]:
        """The given settings whose value will be another one at the next start."""
        return [name for name in names if name in self._pending]

    def save(self, names: Iterable[str]) -> None:
        """Write the values of some settings to the file they came from, keeping all else in it.

        The old file is kept beside it as ``.bak``.

        :raises SettingsError: when the file cannot be written.
        """
        if self.file is None:
            return
        changes = {name: setting_text(self._values[name]) for name in names if name in self._rows}
        changes |= {name: self._unknown[name][0] for name in names if name in self._unknown}
        exists = os.path.exists(self.file)
        text, encoding = _read(self.file) if exists else ("", "utf-8")
        _replace(self.file, with_changes(text, changes).encode(encoding), keep_old=exists)

    def items(self, important_only: bool = False) -> list[tuple[str, str]]:
        """Names and texts in the order of the rows, then the keys no row declares.

        A setting changed for the next start has its new text; a secret is shown as asterisks.
        """
        values = {**self._values, **self._pending}
        known = [(row.name, _shown(row, values[row.name])) for row in self.rows
                 if row.important or not important_only]
        return known if important_only else known + sorted(self.unknown.items())

    def format(self) -> str:
        """All of them as a properties text sorted by name: what the tools are sent."""
        return "".join(f"{name}={text}\n" for name, text in sorted(self.items()))

    def is_provided(self, name: str, value: str) -> bool:
        """Whether a plugin gives a value of a setting its meaning; see ``Setting.provides``."""
        return any(f"{name}={value}" in row.provides for row in self.rows)

    def is_read(self, row: Setting) -> bool:
        """Whether anything reads a setting with the other settings as they are."""
        name, _, value = row.only_with.partition("=")
        return not name or (name in self._rows and setting_text(self._values[name]) == value)

    def has(self, name: str) -> bool:
        """Whether a row declares the setting."""
        return name in self._rows

    def value(self, name: str) -> SettingValue:
        """The value, whatever its kind."""
        return self._values[name]

    def text(self, name: str) -> str:
        """The value of a text or a path."""
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def flag(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def number(self, name: str) -> float:
        value = self._values[name]
        assert isinstance(value, (int, float)), name
        return value

    def names(self, name: str) -> tuple[str, ...]:
        value = self._values[name]
        assert isinstance(value, tuple), name
        return value

    def addresses(self, name: str) -> list[str]:
        """The addresses of a text that separates them by semicolons."""
        return [part.strip() for part in self.text(name).split(";") if part.strip()]

    def store_settings(self) -> StoreSettings:
        """The store's settings: the rows whose names are the store's fields in another spelling.

        :raises SettingsError: when the store does not take a value.
        """
        by_field = {name.lower(): value for name, value in self._values.items()}
        values: dict[str, Any] = {field.name: by_field[field.name.replace("_", "")]
                                  for field in fields(StoreSettings)}
        for name in ("store_path_root_dir", "store_path_commit_log"):
            values[name] = values[name] and os.path.abspath(values[name])
        # A file of a queue holds whole entries: Apache rounds up as well.
        for name, entry_size in WHOLE_ENTRIES.items():
            values[name] = -(-values[name] // entry_size) * entry_size
        try:
            return StoreSettings(**values)
        except StoreSettingFault as fault:
            spelling = fault.field.replace("_", "")
            name = next(name for name in self._rows if name.lower() == spelling)
            raise self.error(name, fault.why) from None

    def error(self, name: str, why: str) -> SettingsError:
        """An error about a setting's value, which says where that is from.

        :param why: what follows "the value".
        """
        place = self._places.get(name, "default")
        return self._rows[name].error(setting_text(self._values[name]), place, why)

    def unavailable(self, name: str, why: str) -> SettingUnavailable:
        """The same as ``error`` about a port or file that the value names and that is not free."""
        return SettingUnavailable(str(self.error(name, why)))

    # Last, because after it ``int`` means the method in this class's annotations.
    def int(self, name: str) -> builtins.int:
        value = self._values[name]
        assert isinstance(value, int), name
        return value


def similar_name(name: str, known: Iterable[str]) -> str:
    """The setting that was meant, if a name is one with a slip; "" if it is not."""
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, 1, _SLIP)
    return by_lower[near[0]] if near else ""


def _shown(row: Setting, value: SettingValue) -> str:
    text = setting_text(value)
    return _SECRET if row.is_secret and text else text


def _read(file: str) -> tuple[str, str]:
    if kind := named_kind(file):
        raise SettingsError(f"settings file {file}: it is {kind}, and not a regular file")
    try:
        return decode_properties(read_named(file))
    except OSError as error:
        raise SettingUnavailable(f"settings file {file}: {error.strerror}") from None


def _replace(file: str, data: bytes, *, keep_old: bool) -> None:
    try:
        os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
        with open(open_regular(f"{file}.tmp", NEW_FILE), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if keep_old:
            shutil.copyfile(file, f"{file}.bak")
        os.replace(f"{file}.tmp", file)
    except OSError as error:
        raise SettingsError(f"settings file {file}: {error.strerror}") from None
