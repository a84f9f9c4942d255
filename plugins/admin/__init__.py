"""What mqadmin asks a broker: settings, figures, topics, groups, clients, queues, retention.

    26   settings         202  offsets of a topic    201  all groups
    28   runtime table    300  groups of a topic     208  progress of a group
    203  consumers        305  system topics         352  one group
    204  producers        351  one topic             307  what a consumer does
    321  entries of a queue   306  clean queues          329  delete expired files
                              316  clean topics

Requests that change topics and groups (17, 200, 207, 215) are the kernel's: clients need them too.

Source: AdminBrokerProcessor @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twistmq.broker import hookimpl
from twistmq.broker.periodic import PeriodicTask
from twistmq.broker.remoting import AnyHandler
from twistmq.plugins.admin.clients import ClientQuestions
from twistmq.plugins.admin.groups import GroupQuestions
from twistmq.plugins.admin.long_answers import IDLE_PERIOD_MS, LongAnswers
from twistmq.plugins.admin.queues import QueueQuestions
from twistmq.plugins.admin.retention import RetentionRequests
from twistmq.plugins.admin.runtime import RuntimeQuestions
from twistmq.plugins.admin.topics import TopicQuestions

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__: list[str] = []


@hookimpl
def register_request_handlers(kernel: Kernel) -> Sequence[AnyHandler]:
    """The rows of one broker, by noun."""
    long_answers = LongAnswers(kernel.now_ms)
    parts = (RuntimeQuestions(kernel), TopicQuestions(kernel, long_answers),
             GroupQuestions(kernel, long_answers), ClientQuestions(kernel),
             QueueQuestions(kernel, long_answers), RetentionRequests(kernel, long_answers))
    return [row for part in parts for row in part.handlers()]


@hookimpl
def register_periodic_tasks(kernel: Kernel) -> Sequence[PeriodicTask]:
    """Answers that take long go on; they are found at the rows in use, where they begin."""
    owners = (getattr(row.handle, "__self__", None) for row in kernel.dispatcher.handlers.values())
    in_use = {owner.long_answers for owner in owners
              if isinstance(owner, (TopicQuestions, GroupQuestions, QueueQuestions,
                                    RetentionRequests))}
    return [PeriodicTask("go on with long answers", IDLE_PERIOD_MS, long_answers.period_ms,
                         long_answers.step) for long_answers in in_use]
