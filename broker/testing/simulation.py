"""A seeded simulation of a message store on a disk with losses and failures.

    Simulation(seed=17).run()       # raises SimulationFailed, which lists the steps

A store has to survive crashes at every point of its work, and there are far too many combinations
of operations, faults and crashes to write a test for each. The simulation therefore explores them
at random. Each seed chooses settings, sends messages of every kind, lets time pass, and stops or
kills the store or cuts its power, also in the middle of an operation; in between, the disk becomes
full or fails. After each start, and from time to time, everything is compared with a model. The
files are so small that a few messages fill one. There are no threads, sockets or real clocks, so a
seed always does the same, and each failure can be replayed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Final

from twistmq.broker.store.settings import StoreSettings
from twistmq.broker.testing.power_loss import PowerCut
from twistmq.broker.testing.simulated_store import SimulatedStore
from twistmq.broker.testing.store import inner_batch, message, small_settings
from twistmq.broker.testing.store_model import EndKind, Sent
from twistmq.protocol.errors import StoreError
from twistmq.protocol.properties import INNER_MULTI_DISPATCH, with_property
from twistmq.protocol.record import (
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    MessageRecord,
)

__all__ = ["Simulation", "SimulationFailed"]

_TOPICS: Final = ("orders", "Aufträge-订单", "long" + "g" * 130)
#: The topics that may be batch topics, and the light queues that any message may name.
_BATCH_TOPICS: Final = ("orders", "parts")
_LIGHT_TOPICS: Final = ("%LMQ%a", "%LMQ%b", "%LMQ%группа")
_QUEUE_DIRECTORIES: Final = (
    "/store/consumequeue", "/store/consumequeue_ext", "/store/batchconsumequeue")
_TAGS: Final = ("", "", "red", "grün")
_SYS_FLAGS: Final = (0, 0, 0, 0, 0, SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK)
_BODY_SIZES: Final = (0, 1, 20, 100, 300, 700)
#: Jumps of the wall clock: a correction, a manual change, or a host that starts without the time.
_JUMPS_MS: Final = (-1, -700, -2500, -10_000, -3_600_000, 5000, 7_200_000)
#: Steps of time: within a batch, or longer than the flush period of the log, of the checkpoint, or
#: of the index and the queues.
_ELAPSED_MS: Final = (0, 1, 60, 600, 1100, 4000, 11_000, 61_000)


class SimulationFailed(AssertionError):
    """A seed found a fault; the text contains its steps and the command that replays it."""


class Simulation(SimulatedStore):
    """One run of the simulation.

    :param seed: determines everything.
    """

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        super().__init__(_choose_settings(chance), chance)
        self.seed = seed
        self.batch_topics = {topic for topic in _BATCH_TOPICS if chance.random() < 0.3}
        self._topics = [*_TOPICS, *(self.batch_topics - {*_TOPICS})]
        self._numbers = count()
        self._weights: dict[Callable[[], None], int] = {
            self._send: 10,
            self._send_and_wait: 10,
            self._pass_time: 8,
            self._set_clock: chance.choice((0, 0, 2)),
            self.run_job: 8,
            self._compare: 1,
            self.stop: 1,
            self._kill: 2,
            self._lose_power: 2,
            self.arm: 2,
            self._rest: 2,
            self._remove_expired: chance.choice((0, 3)),
            self._fill_disk: chance.choice((0, 0, 1)),
            self._break_disk: chance.choice((0, 0, 0, 1)),
            self._lose_entries: chance.choice((0, 3)),
            self.heal: 1,
        }

    # --- running

    def run(self, step_count: int = 40) -> None:
        """Perform the given number of steps, then stop the store and compare it a last time.

        :raises SimulationFailed: when the store broke a guarantee or failed in another way.
        """
        try:
            self.open(EndKind.STOP)
            steps, weights = list(self._weights), list(self._weights.values())
            for _ in range(step_count):
                self._do(self.chance.choices(steps, weights)[0])
            self._do(self.heal)
            self._do(self.chance.choice((self.stop, self._kill, self._lose_power)))
        except (Exception, PowerCut) as error:
            raise SimulationFailed(self._report(error)) from error

    def _report(self, error: BaseException) -> str:
        """Describe the fault, the steps before it, and the command that replays it."""
        lines = [f"{number:4}  {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join([
            f"seed {self.seed}: {type(error).__name__}: {error}",
            *lines,
            f"replay it: python -m tests.long.simulation --seed {self.seed}",
        ])

    def _do(self, step: Callable[[], None]) -> None:
        """Perform a step; if the process died in it, start it again."""
        try:
            step()
        except PowerCut:
            self.note("the process dies in it")
        if self.disk.is_cut:
            self.end(self.chance.choice((EndKind.KILL, EndKind.POWER_LOSS)))

    def _kill(self) -> None:
        self.end(EndKind.KILL)

    def _lose_power(self) -> None:
        self.end(EndKind.POWER_LOSS)

    # --- messages

    def _message(self) -> MessageRecord:
        """Make a unique message."""
        chance, number = self.chance, next(self._numbers)
        size = chance.choice(_BODY_SIZES)
        body = bytes(size) if chance.random() < 0.2 else chance.randbytes(size)
        keys = chance.choice(("", "all", f"key{number} all", f"ключ{number}"))
        if chance.random() < 0.1:
            # Longer than a sector, so that a loss of power can leave out a whole sector.
            keys = "x" * 600
        topic, queue_id = chance.choice(self._topics), chance.randrange(2)
        body = b"%d:" % number + body
        if topic in self.batch_topics and chance.random() < 0.5:
            return inner_batch(topic, [body] * chance.choice((1, 2, 7)), queue_id)
        record = message(
            topic, body, queue_id, tag=chance.choice(_TAGS), keys=keys,
            unique_key=chance.choice(("", f"id{number}")), sys_flag=chance.choice(_SYS_FLAGS),
        )
        if self.settings.light_queues and topic not in self.batch_topics and not record.sys_flag:
            names = chance.sample(_LIGHT_TOPICS, chance.choice((0, 1, 1, 3)))
            if names:
                record.properties = with_property(
                    record.properties, INNER_MULTI_DISPATCH, ",".join(names))
        return record

    def _send(self) -> None:
        """Send one message or a batch."""
        self._append()

    def _send_and_wait(self) -> None:
        """Send messages, and count them as safe once the store confirms it."""
        end = self._append()
        if end is None:
            return
        waiting = self.store.flush.flushed(end)
        if waiting is None:
            self.model.promised(end)
        else:
            waiting.addCallbacks(lambda _: self.model.promised(end), lambda _: None)

    def _append(self) -> int | None:
        """Give messages to the store; return their end in the log, or None if refused."""
        records = [self._message() for _ in range(self.chance.choice((1, 1, 1, 2, 5)))]
        self.giving = records
        try:
            self.store.append(records)
        except StoreError as error:
            self.note(f"{len(records)} messages are refused: {error}")
            self.model.attempted([each for each in records if each.next_offset])
            self.giving = []
            return None
        sent: list[Sent] = self.model.attempted(records)
        self.giving = []
        self.note(f"send {sent}")
        self.model.appended(sent)
        return sent[-1].end

    # --- time

    def _pass_time(self) -> None:
        """Let time pass, and let the store run its due work."""
        elapsed_ms = self.chance.choice(_ELAPSED_MS)
        steps = self.chance.choice((1, 1, 8))
        self.note(f"{elapsed_ms} ms, {steps} steps")
        self.now_ms += elapsed_ms
        for _ in range(steps):
            self.store.flush_step(self.now_ms)

    def _set_clock(self) -> None:
        """Make the wall clock jump."""
        jump_ms = self.chance.choice(_JUMPS_MS)
        self.note(f"the wall clock jumps by {jump_ms} ms")
        self.jumped_ms += jump_ms

    def _rest(self) -> None:
        """Run the periodic work until all flushed data is durable."""
        self.note("rest")
        for elapsed_ms in (61_000, 1100, 1100):
            self.now_ms += elapsed_ms
            for _ in range(8):
                self.store.flush_step(self.now_ms)
                self.run_job()

    def _remove_expired(self) -> None:
        """Remove old files, and the entries that point into them."""
        store = self.store
        store.log_retention.remove_expired()
        for retention in (store.log_retention, store.queue_retention):
            for _ in range(self.chance.choice((0, 1, 9))):
                # One step at a time: the next step waits until the files of the previous one are
                # removed.
                if self.removing is None or self.removing.called:
                    self.removing = retention.step(self.wall_ms())
                else:
                    self.run_job()
        self.note(f"retention, the log begins at {store.commit_log.min_offset}")

    def _compare(self) -> None:
        self.model.check(self.store)

    # --- faults

    def _fill_disk(self) -> None:
        self.disk.room_bytes = self.chance.choice((0, 50, 300, 2000))
        self.note(f"room for {self.disk.room_bytes} bytes")

    def _break_disk(self) -> None:
        """Make writes or syncs fail after a few more of them."""
        after = self.chance.choice((1, 2, 5))
        if self.chance.random() < 0.5:
            self.disk.fail_write_in = after
            self.model.may_return = True
            self.note(f"writes fail in {after}")
        else:
            self.disk.fail_sync_in = after
            self.note(f"syncs fail in {after}")

    def _lose_entries(self) -> None:
        """Make the next sync of entries, of units or of their directories fail once."""
        kinds = [path for path in _QUEUE_DIRECTORIES if self.disk.exists(path)]
        if not kinds:
            return
        self.disk.fail_sync_of = self.chance.choice(kinds) + self.chance.choice(("", "/"))
        self.note(f"a sync below {self.disk.fail_sync_of} fails")
        if self.chance.random() < 0.5:
            self._append()
            self._rest()


def _choose_settings(chance: random.Random) -> StoreSettings:
    """Choose settings with files for a few messages."""
    return small_settings(
        mapped_file_size_commit_log=chance.choice((1500, 2048, 4096, 10_000)),
        mapped_file_size_consume_queue=chance.choice((60, 100, 400)),
        max_hash_slot_num=chance.choice((3, 20)),
        max_index_num=chance.choice((8, 30, 100)),
        message_index_safe=chance.random() < 0.5,
        flush_disk_type=chance.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
        flush_consume_queue_thorough_interval=chance.choice((1000, 60_000)),
        file_reserved_time=0,
        enable_consume_queue_ext=chance.random() < 0.3,
        mapped_file_size_consume_queue_ext=chance.choice((60, 150, 1000)),
        bit_map_length_consume_queue_ext=chance.choice((1, 64)),
        warm_maped_file_enable=chance.random() < 0.2,
        mapper_file_size_batch_consume_queue=chance.choice((46 * 2, 46 * 5, 46 * 20)),
        enable_lmq=(light := chance.random() < 0.3),
        enable_multi_dispatch=light,
    )
