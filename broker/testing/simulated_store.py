"""A simulated store on a disk with losses and failures, and a model of its expected contents.

Jobs for threads run later than requested and in any order. The store is opened again after each of
its ends, and its contents are then compared with the model. ``simulation`` contains the steps that
are performed with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.store.settings import StoreSettings
from twistmq.broker.testing.power_loss import PowerCut, PowerLossDisk
from twistmq.broker.testing.store_model import EndKind, ModelBroken, StoreModel
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import MessageRecord

__all__ = ["SimulatedStore"]

#: The numbers of disk changes after which a process may be made to die.
_DEATHS: Final = (1, 2, 3, 5, 8, 13, 21)


class SimulatedStore:
    """A store with its disk, its clock and its model.

    :param chance: makes all random decisions.
    """

    def __init__(self, settings: StoreSettings, chance: random.Random) -> None:
        #: The steps up to now, as texts for the report.
        self.steps: list[str] = []
        #: Called with each completed step.
        self.on_step: Callable[[str], object] = lambda step: None
        self.settings = settings
        self.chance = chance
        self.disk = PowerLossDisk()
        self.disk.now_ms = self.wall_ms
        #: The clock for durations; the wall clock differs from it by ``jumped_ms``.
        self.now_ms = 1_700_000_000_000
        self.jumped_ms = 0
        self.model = StoreModel(settings.mapped_file_size_commit_log, settings.message_index_safe)
        #: Whether jobs wait until a separate step runs them.
        self.jobs_wait = chance.random() < 0.6
        #: The topics whose queues are batch queues.
        self.batch_topics: set[str] = set()
        #: The records of the append in progress.
        self.giving: list[MessageRecord] = []
        #: The removal of files in progress.
        self.removing: Deferred[None] | None = None
        self._jobs: list[tuple[Callable[[], None], Deferred[None]]] = []

    def wall_ms(self) -> int:
        """The time of the wall clock, Unix ms."""
        return self.now_ms + self.jumped_ms

    def note(self, text: str) -> None:
        """Record a completed step."""
        self.steps.append(text)
        self.on_step(text)

    # --- life of the store

    def open(self, ending: EndKind) -> None:
        """Open a store over the files of the last one, and compare it with the model."""
        endings = [ending]
        cut = self.model.attempted([each for each in self.giving if each.next_offset])
        self.giving = []
        while True:
            self._jobs = []
            self.removing = None
            # This fault is meant for a running store, so it ends before the next store starts.
            self.disk.fail_sync_of = None
            self.store = MessageStore(
                self.settings, self.disk, self.wall_ms, self._in_thread,
                steady_ms=lambda: self.now_ms,
            )
            try:
                self.store.load(self.batch_topics.__contains__)
                self.store.start()
            except PowerCut:
                endings.append(self._cut_power(EndKind.KILL))
                self.note(f"the process dies while it starts, {endings[-1].name}")
            except (StoreError, OSError) as error:
                if not self._is_faulty():
                    raise ModelBroken(f"the store cannot be opened: {error}") from error
                self.note(f"it cannot start: {error}")
                endings.append(self._cut_power(EndKind.KILL))
                self.heal()
            else:
                break
        worst = max(endings, key=list(EndKind).index)
        self.note(
            f"store from {self.store.commit_log.min_offset} to {self.store.commit_log.max_offset}")
        self.model.after_restart(self.store, worst, cut)

    def _cut_power(self, ending: EndKind) -> EndKind:
        """End the process, and possibly lose power; return the kind of end."""
        self.store.close()
        # Data that a failed sync dropped can still be read until the machine restarts.
        if self.disk.has_dropped or self.chance.random() < 0.2:
            ending = EndKind.POWER_LOSS
        if ending is EndKind.POWER_LOSS:
            self.disk.crash(self.chance)
        else:
            self.disk.kill()
        return ending

    def end(self, ending: EndKind) -> None:
        """End the store and start another."""
        self.model.min_offset = self.store.commit_log.min_offset
        ending = self._cut_power(ending)
        self.note(ending.name)
        if self.chance.random() < 0.1:
            self.arm()
        self.open(ending)

    def stop(self) -> None:
        """Stop cleanly, if the disk allows it."""
        stopped = self.store.stop()
        while not stopped.called:
            if not self._jobs:
                raise ModelBroken("the stop waits for nothing")
            self.run_job()
        if self.disk.is_cut:
            return
        clean = not self.disk.exists(self.settings.path("abort"))
        if clean:
            self.model.promised(self.store.commit_log.max_offset)
        self.note("stop" if clean else "stop, not clean")
        self.end(EndKind.STOP if clean else EndKind.KILL)

    def arm(self) -> None:
        """Make the process die soon, in the middle of an operation."""
        self.disk.cut_in = self.chance.choice(_DEATHS)
        self.note(f"it will die in {self.disk.cut_in}")

    # --- jobs

    def _in_thread(self, job: Callable[[], None]) -> Deferred[None]:
        """Run a job, now or in a later step."""
        done: Deferred[None] = Deferred()
        self._jobs.append((job, done))
        if not self.jobs_wait:
            self.run_job()
        return done

    def run_job(self) -> None:
        """Run one of the jobs for threads."""
        if not self._jobs:
            return
        job, done = self._jobs.pop(self.chance.randrange(len(self._jobs)))
        try:
            job()
        except (StoreError, OSError) as error:
            self.note(f"a job fails: {error}")
            done.errback(Failure(error))
        else:
            self.note("a job is done")
            done.callback(None)

    # --- faults

    def _is_faulty(self) -> bool:
        disk = self.disk
        return (disk.room_bytes, disk.fail_write_in, disk.fail_sync_in) != (None, None, None)

    def heal(self) -> None:
        """End all faults of the disk."""
        self.disk.room_bytes = self.disk.fail_write_in = self.disk.fail_sync_in = None
        self.disk.fail_sync_of = None
        self.note("the disk is well")
