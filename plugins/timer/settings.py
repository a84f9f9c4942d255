"""The settings of timed messages.

Source: MessageStoreConfig, BrokerConfig @5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from twistmq.broker.api import Setting, Settings
from twistmq.broker.api.config import INT_MAX, require_size
from twistmq.plugins.timer.log_unit import BLANK_SIZE_MIN, UNIT_SIZE
from twistmq.plugins.timer.wheel import SLOTS_TOTAL

__all__ = ["TICKS_MS", "TIMER_SETTINGS", "TimerSettings", "require_log_size"]

_STORE: Final = "MessageStoreConfig"
_BROKER: Final = "BrokerConfig"
#: The possible ticks, ms; any other value counts as the next shorter tick.
TICKS_MS: Final = (1000, 500, 200, 100)
#: The number of slots that a roll keeps away from the end of the week that the wheel covers.
#: Source: TimerMessageStore.TIMER_BLANK_SLOTS.
_BLANK_SLOTS: Final = 60

TIMER_SETTINGS: Final = (
    Setting("timerWheelEnable", "flag", True,
            "Whether timed messages are supported; read at start.", source=_STORE,
            important=True, at_start=True),
    Setting("timerMaxDelaySec", "int", 3 * 86_400,
            "The longest time for which a message may be delayed.",
            unit="s", least=0, source=_STORE),
    Setting("timerPrecisionMs", "int", 1000,
            "The tick of delivery: 100, 200, 500 or 1000; others count as the next shorter one.",
            unit="ms", least=0, source=_STORE, at_start=True),
    Setting("timerRollWindowSlot", "int", 2 * 86_400,
            "Messages due at least this many ticks ahead are entered in several steps; at most "
            f"{SLOTS_TOTAL - _BLANK_SLOTS}, which is also used for values above it or below 2.",
            unit="ticks", least=-INT_MAX, source=_STORE, at_start=True),
    Setting("timerFlushIntervalMs", "int", 1000,
            "How often the progress of entering and delivering is saved.", unit="ms",
            least=1, source=_STORE),
    Setting("timerCongestNumEachSlot", "int", INT_MAX,
            "The number of messages of one tick above which some further messages are refused; at "
            "twice this number, all are.", unit="messages", least=0, source=_STORE),
    Setting("mappedFileSizeTimerLog", "int", 100 * 1024 * 1024,
            "The size of each file of the timer log.", unit="bytes",
            least=UNIT_SIZE + BLANK_SIZE_MIN, source=_STORE, at_start=True),
    Setting("timerStopEnqueue", "flag", False,
            "Whether arriving timed messages are left waiting and not entered.", source=_STORE),
    Setting("timerStopDequeue", "flag", False, "Whether due messages are held back.",
            source=_STORE),
    Setting("timerProgressLogIntervalMs", "int", 10_000,
            "How often a delay of entering or delivering is logged.",
            unit="ms", least=1, source=_STORE),
    Setting("recallMessageEnable", "flag", False,
            "Whether producers can recall timed messages.", source=_BROKER),
    Setting("allowRecallWhenBrokerNotWriteable", "flag", True,
            "Whether producers can recall them even if brokerPermission forbids sends.",
            source=_BROKER),
)


@dataclass(frozen=True, slots=True)
class TimerSettings:
    """The settings that are read at the start and do not change."""

    enabled: bool
    tick_ms: int
        #: Ticks ahead from which on a message is rolled.
    roll_window: int
    log_file_size: int

    @classmethod
    def read(cls, settings: Settings) -> Self:
        """Read the values that the user set."""
        precision_ms = settings.int("timerPrecisionMs")
        window, max_window = settings.int("timerRollWindowSlot"), SLOTS_TOTAL - _BLANK_SLOTS
        return cls(
            settings.flag("timerWheelEnable"),
            next((each for each in TICKS_MS if precision_ms >= each), TICKS_MS[-1]),
            window if 2 <= window <= max_window else max_window,
            settings.int("mappedFileSizeTimerLog"))


def require_log_size(settings: Settings) -> None:
    """:raises StoreDamaged, SettingsError: when the timer log has files of another size."""
    name, running = "mappedFileSizeTimerLog", settings.running
    if settings.flag("timerWheelEnable"):
        require_size(settings, name, Path(settings.text("storePathRootDir"), "timerlog"),
                     settings.int(name),
                     is_made=running is not None and running.flag("timerWheelEnable"))
