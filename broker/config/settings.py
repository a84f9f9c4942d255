"""Settings: the rows that declare them, and the values of one run.

Every setting is one :class:`Setting` row. Parsing, the checks, ``-p`` and the table in SETTINGS.md
are derived from the row. The rows are in ``setting_rows``; a plugin adds its own rows through
``register_settings``. The names and defaults are Apache's, so a ``broker.conf`` that was written
for Apache's broker works; settings that Apache does not have contain a dot in their names. The
command line takes precedence over the file, and the file over the defaults. If one command runs
several brokers, each broker has a second file, which takes precedence over the common one.

Further rules of a start are :class:`SettingCheck` objects. A start, the doctor and a change by a
tool all run the same checks.

A key that no row declares is kept and named in a warning. Differs from Apache: a value that is out
of bounds or of the wrong type stops the start instead of being skipped silently, because a typing
error in ``flushDiskType`` must not cause a loss of messages.

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
from twistmq.protocol.decimal_text import LONG_MAX

__all__ = ["INT_MAX", "LONG_MAX", "OWN_FILE", "OfEach", "Setting", "SettingCheck", "SettingKind",
           "SettingValue", "Settings", "similar_name"]

#: The greatest value of int in Java.
INT_MAX: Final = 2**31 - 1

SettingValue = bool | int | float | str | tuple[str, ...]
#: ``path`` is a text in which ``~`` stands for the home directory; ``names`` are separated by
#: commas.
SettingKind = Literal["int", "float", "flag", "text", "path", "names"]
#: How the value differs between the brokers of one command; see :class:`Setting`.
OfEach = Literal["", "name", "port", "folder", "inner_port", "inner_host", "above_store",
                 "own_file", "one_broker"]

#: The setting that names a broker's own settings file.
OWN_FILE: Final = "settings.own_file"
COMMAND_LINE: Final = "command line"
UPDATE: Final = "update"
#: The settings that request access control.
_ACCESS: Final = ("aclEnable", "authenticationEnabled")
#: The similarity from which an unknown name counts as a misspelt setting, 0.0 to 1.0.
_SLIP: Final = 0.9
#: The text that is shown in place of a secret.
_SECRET: Final = "******"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    :param name: a name with a dot, such as "mine.rate"; names without a dot are Apache's.
    :param kind: "int", "float", "flag" (true or false), "text", "path" (``~`` is the home folder)
        or "names" (texts separated by commas). ``broker.settings`` has a getter with the name of
        each kind, except that "float" uses ``number`` and "path" uses ``text``.
    :param default: the value if none is given; a function is called once, when the settings are
        loaded.
    :param help: one sentence for the reader of SETTINGS.md.
    :param unit: the unit of a number: "ms", "bytes", ...
    :param least: the smallest allowed number.
    :param most: the greatest allowed number.
    :param choices: the only allowed texts; empty: any text.
    :param source: the Apache class that declares it; empty for a name with a dot.
    :param important: whether ``-m`` prints it.
    :param default_text: the text that the table shows in place of a computed default.
    :param at_start: whether it is read only at the start, so that a change takes effect at the next
        one; otherwise its reader looks it up each time or listens for changes.
    :param is_fixed: whether no tool may change it, regardless of a black list.
    :param is_secret: whether its value is never shown.
    :param provides: values of other settings that become valid if this setting is declared, as
        "NAME=VALUE": ``brokerRole=SLAVE`` is refused unless the setting of a plugin provides it.
    :param of_each: how the value differs if one command runs several brokers. "name": the broker's
        number is appended; "port": 10 higher for each broker; "folder": a folder below it, with the
        broker's name; "inner_port", "inner_host": the port and host of pages that the supervisor
        requests and serves in place of the brokers; "above_store": all brokers have the same value,
        which is the folder above storePathRootDir of the command if it is empty; "own_file": a file
        in the folder of the broker's store; "one_broker": refused if there is more than one broker,
        since all of them would have the same value. Empty: all brokers have the same value.
    :param only_with: the value of another setting, as "NAME=VALUE", without which this setting is
        not read: a port on which nothing listens does not conflict with another port.
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

    def parse(self, text: str, origin: str) -> SettingValue:
        """Return the value that a text stands for.

        :param origin: the origin of the text, for the error.
        :raises SettingsError: when the text is not a valid value or is out of bounds.
        """
        text = text.strip()
        try:
            value = _PARSERS[self.kind](text)
        except ValueError:
            raise self.error(text, origin, f"is not {_KIND_NAMES[self.kind]}") from None
        if self.choices and value not in self.choices:
            raise self.error(text, origin, f"is not one of {', '.join(self.choices)}")
        if self.kind in ("int", "float"):
            assert isinstance(value, (int, float))
            if not self.least <= value <= self.most:
                raise self.error(text, origin, f"is not from {self.least} to {self.most}")
        return value

    def error(self, text: str, origin: str, why: str) -> SettingsError:
        return SettingsError(f"{self.name}={text} ({origin}): the value {why}")


@dataclass(frozen=True, slots=True)
class SettingCheck:
    """A rule about settings that a start checks, beyond the validity of each single value.

    :param names: the settings that the rule reads; it is checked when a tool changes one of them.
    :param run: raises SettingsError or BrokerError when a start with the settings would fail. It
        must not block, because changes by tools are checked on the reactor.
    :param part: the part of ``twistmq doctor`` that reports more about the same subject; empty:
        there is no such part.
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
    """Return a value in the form of a properties file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


class Settings:
    """The values of one run.

    :param rows: the declared settings; of two rows with the same name the later one is used.
    """

    def __init__(self, rows: Iterable[Setting]) -> None:
        self._rows: dict[str, Setting] = {}
        self._values: dict[str, SettingValue] = {}
        #: Values that take effect at the next start.
        self._pending: dict[str, SettingValue] = {}
        #: The texts of keys that no row declares, with their origins.
        self._unknown: dict[str, tuple[str, str]] = {}
        self._given_names: set[str] = set()
        #: The origins of the texts of known settings.
        self._origins: dict[str, str] = {}
        #: The file that :meth:`save` changes; None: nothing is saved.
        self.file: str | None = None
        #: Whether the next start by the same command reads that file.
        self.is_file_read = False
        #: The settings that were given on the command line.
        self._overridden: frozenset[str] = frozenset()
        #: The rules of a start that do not depend on plugins.
        self.checks: list[SettingCheck] = []
        #: Further rules about the host, and the rules of the plugins in use.
        self.start_checks: list[SettingCheck] = []
        #: Sets the defaults that depend on other settings.
        self.derive: Callable[[Settings], None] | None = None
        #: If this object describes the next start: the settings of the running process. None: these
        #: are the settings of a start.
        self.running: Settings | None = None
        #: Called after :meth:`update` with the changed settings.
        self.on_change: list[Callable[[Mapping[str, SettingValue]], None]] = []
        self.add_rows(rows)
        #: The initial rows; the rows of plugins are added later.
        self.own_rows = tuple(self._rows.values())

    @classmethod
    def load(
        cls,
        rows: Iterable[Setting],
        file: str | os.PathLike[str] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Settings:
        """Load the defaults, a file, the broker's own file, and the values of the command line.

        The broker's own file may be missing until a tool changes a setting.

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
        """Read a file; changes are saved in the file that was read last.

        :param is_optional: whether the file may be missing.
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
            if row.name not in self._given_names:
                self._values[row.name] = row.default_value()
            if row.name in self._unknown:
                self._take(row.name, *self._unknown.pop(row.name))

    def _take(self, name: str, text: str, origin: str) -> None:
        row = self._rows.get(name)
        if row is None:
            self._unknown[name] = (text, origin)
            return
        self._values[name] = row.parse(text, origin)
        self._origins[name] = origin
        self._given_names.add(name)

    @property
    def unknown(self) -> dict[str, str]:
        """The texts of the keys that no row declares."""
        return {name: text for name, (text, _) in self._unknown.items()}

    @property
    def rows(self) -> list[Setting]:
        return list(self._rows.values())

    def row(self, name: str) -> Setting:
        """The row that declares a setting."""
        return self._rows[name]

    def is_given(self, name: str) -> bool:
        """Return whether a setting's value comes from a file, the command line or :meth:`put`."""
        return name in self._given_names

    def is_read_back(self, name: str) -> bool:
        """Return whether the next start with the same command reads what :meth:`save` writes."""
        return self.file is not None and self.is_file_read and name not in self._overridden

    def put(self, name: str, value: SettingValue) -> None:
        """Set a declared setting for this run; :meth:`save` does not write it."""
        assert name in self._rows, name
        self._values[name] = value
        self._given_names.add(name)

    def put_from(self, other: Settings, name: str) -> None:
        """Copy a declared setting from another run, with its origin and whether it was given."""
        if other.is_given(name):
            self.put(name, other.value(name))
            self._origins[name] = other._origins.get(name, "default")
        else:
            self.put_default(name, other.value(name))

    def put_default(self, name: str, value: SettingValue) -> None:
        """Give a setting another default for this run."""
        if name not in self._given_names:
            assert name in self._rows, name
            self._values[name] = value

    def update(
        self, changes: Mapping[str, str], *, save: bool = False
    ) -> dict[str, SettingValue]:
        """Change settings while running: all of them, or none if one of them is not valid.

        A setting that is read only at the start keeps its current value, while tools and the file
        receive the new one. The same is true of settings of Apache that are not used here, and of
        keys in the file that belong to another program. Differs from Apache, which ignores an
        unknown key and replies that it was set.

        :param save: whether to write them to the file as well.
        :returns: the settings whose value has changed.
        :raises SettingsError: when a name or value is not valid, when no tool may change the
            setting, when the next start would fail with it, or when the file cannot be written.
        :raises BrokerError: when the next start would fail with it because of the state of the
            host.
        """
        for name in changes:
            if name in self._rows and self._rows[name].is_fixed:
                raise SettingsError(f"{name}: it is read at the start only, a tool cannot change "
                                    "it")
            if not self._is_known(name):
                guess = similar_name(name, self._rows)
                raise SettingsError(f"{name}: there is no such setting"
                                    + (f", did you mean {guess}?" if guess else ""))
        new_values = {name: self._rows[name].parse(text, UPDATE)
                      for name, text in changes.items() if name in self._rows}
        after = self._at_next_start(new_values, changes)
        # A default that is given explicitly may have another meaning: plugins.enabled= means no
        # plugins.
        after.check({name for name in changes if name not in self._given_names
                     or after._accepted(name) != self._accepted(name)})
        if save:
            after.save(changes)
        changed = {name: value for name, value in new_values.items()
                   if not self._rows[name].at_start and value != self._values[name]}
        self._values.update(changed)
        self._pending = {name: value for name, value in after._values.items()
                         if value != self._values[name]}
        self._unknown, self._origins = after._unknown, after._origins
        self._given_names = after._given_names
        if changed:
            for listener in self.on_change:
                listener(changed)
        return changed

    def _at_next_start(
        self, new_values: Mapping[str, SettingValue], changes: Mapping[str, str]
    ) -> Settings:
        """Return a copy with the changes, in the state of the next start."""
        after = copy.copy(self)
        after.running = self
        after._values = {**self._values, **self._pending, **new_values}
        after._pending = {}
        after._given_names = {*self._given_names, *new_values}
        after._origins = {**self._origins, **dict.fromkeys(new_values, UPDATE)}
        after._unknown = {**self._unknown, **{name: (text, UPDATE)
                                              for name, text in changes.items()
                                              if name not in self._rows}}
        if self.derive is not None:
            self.derive(after)
        return after

    def _is_known(self, name: str) -> bool:
        """Return whether a tool may set it: a setting of ours, of Apache or of another program."""
        return name in self._rows or name in self._unknown or name in UNREAD

    def _accepted(self, name: str) -> SettingValue | None:
        """Return the value that the next start would find, as far as it is known."""
        if name in self._unknown:
            return self._unknown[name][0]
        return self._pending.get(name, self._values.get(name))

    def is_new(self, name: str) -> bool:
        """Return whether the value still has to be proved by a start."""
        return self.running is None or self._accepted(name) != self.running._accepted(name)

    def check(self, changed: Collection[str] | None = None) -> None:
        """Run the checks of a start.

        :param changed: run only the checks that read one of these settings; None: all checks.
        :raises SettingsError, BrokerError: the first error that a check raises.
        """
        for check in (*self.checks, *self.start_checks):
            if changed is None or not check.names or not set(check.names).isdisjoint(changed):
                check.run(self)

    def without_plugins(self) -> Self:
        """Return a copy in the state before any plugin has declared its settings."""
        reduced = type(self)(self.own_rows)
        reduced.running, reduced.checks, reduced.file = self.running, self.checks, self.file
        reduced.is_file_read, reduced._overridden = self.is_file_read, self._overridden
        own = {row.name for row in self.own_rows}
        reduced._values = {name: value for name, value in self._values.items() if name in own}
        reduced._origins = self._origins
        reduced._given_names = self._given_names & own
        # The setting of a plugin is a text until the plugin declares it.
        reduced._unknown = {**self._unknown, **{
            name: (setting_text(self._values[name]), self._origins.get(name, UPDATE))
            for name in self._given_names - own}}
        return reduced

    def pending(self, names: Iterable[str]) -> list[str]:
        """Return the given settings whose value will be different at the next start."""
        return [name for name in names if name in self._pending]

    def save(self, names: Iterable[str]) -> None:
        """Write the values of some settings to their file, and keep everything else in it.

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
        """Return names and texts in the order of the rows, then the keys that no row declares.

        A setting that was changed for the next start has its new text; a secret is shown as
        asterisks.
        """
        values = {**self._values, **self._pending}
        declared = [(row.name, _shown(row, values[row.name])) for row in self.rows
                    if row.important or not important_only]
        return declared if important_only else declared + sorted(self.unknown.items())

    def format(self) -> str:
        """Return all settings as a properties text sorted by name, which is sent to tools."""
        return "".join(f"{name}={text}\n" for name, text in sorted(self.items()))

    def is_provided(self, name: str, value: str) -> bool:
        """Return whether a plugin makes a value of a setting valid; see ``Setting.provides``."""
        return any(f"{name}={value}" in row.provides for row in self.rows)

    def is_read(self, row: Setting) -> bool:
        """Return whether a setting is read, given the current values of the other settings."""
        name, _, value = row.only_with.partition("=")
        return not name or (name in self._rows and setting_text(self._values[name]) == value)

    def has(self, name: str) -> bool:
        """Whether a row declares the setting."""
        return name in self._rows

    @property
    def access_setting(self) -> str:
        """The name of the setting because of which plugins check every request; "" if none is on.

        It is aclEnable (ACL 1.0) or authenticationEnabled (ACL 2.0).
        """
        return next((name for name in _ACCESS if self.has(name) and self.flag(name)), "")

    def value(self, name: str) -> SettingValue:
        """Return the value of a setting of any kind."""
        return self._values[name]

    def text(self, name: str) -> str:
        """Return the value of a text or a path."""
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
        """Return the addresses of a text that separates them by semicolons."""
        return [part.strip() for part in self.text(name).split(";") if part.strip()]

    def store_settings(self) -> StoreSettings:
        """Return the store's settings: the rows whose names match the store's fields.

        :raises SettingsError: when the store does not accept a value.
        """
        by_field = {name.lower(): value for name, value in self._values.items()}
        values: dict[str, Any] = {field.name: by_field[field.name.replace("_", "")]
                                  for field in fields(StoreSettings)}
        for name in ("store_path_root_dir", "store_path_commit_log"):
            values[name] = values[name] and os.path.abspath(values[name])
        # A file of a queue contains whole entries; Apache rounds up as well.
        for name, entry_size in WHOLE_ENTRIES.items():
            values[name] = -(-values[name] // entry_size) * entry_size
        try:
            return StoreSettings(**values)
        except StoreSettingFault as fault:
            spelling = fault.field.replace("_", "")
            name = next(name for name in self._rows if name.lower() == spelling)
            raise self.error(name, fault.why) from None

    def error(self, name: str, why: str) -> SettingsError:
        """Return an error about a setting's value, which states the origin of the value.

        :param why: the text after "the value".
        """
        origin = self._origins.get(name, "default")
        return self._rows[name].error(setting_text(self._values[name]), origin, why)

    def unavailable(self, name: str, why: str) -> SettingUnavailable:
        """Return the same as ``error``, for a value that names a port or file that is not free."""
        return SettingUnavailable(str(self.error(name, why)))

    # This method is the last one, because after it ``int`` means the method in the annotations of
    # this class.
    def int(self, name: str) -> builtins.int:
        value = self._values[name]
        assert isinstance(value, int), name
        return value


def similar_name(name: str, names: Iterable[str]) -> str:
    """Return the setting that a misspelt name probably means; "" if no setting is similar."""
    by_lower = {each.lower(): each for each in names}
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
