"""The positions of a pull member."""

from __future__ import annotations

from tests.client.core.box import Answer
from tests.client.core.consumer.part_case import queue
from tests.client.core.consumer.pull_case import PullCase
from tests.client.core.group_box import BROKER
from twistmq.client.base.errors import NotAssigned, OptionError
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand


class SeekTests(PullCase):
    """Queues that continue at another offset."""

    def test_a_seek_continues_a_queue_there(self) -> None:
        """Messages that were polled before are not acknowledged then."""
        self.poll()
        for seek, left in ((self.positions.seek(queue(0), 3), [6, 8]),
                           (self.positions.seek_to_end(queue(0)), []),
                           (self.positions.seek_to_begin(queue(0)), [0, 2, 4, 6, 8]),
                           (self.positions.seek_to_time(queue(0), 1), [4, 6, 8])):
            self.box.run(seek)
            position = self.positions.position(queue(0))
            self.assertEqual(position, 5 - len(left))
            self.assertEqual(self.poll(timeout_ms=100), left)
        self.box.run(self.positions.seek(queue(0), 1))
        self.poll()
        self.box.run(self.member.commit())
        self.assertEqual(self.box.run(self.positions.committed(queue(0))), 1)
        self.box.run(self.positions.seek_to_begin(queue(0)))
        self.box.run(self.member.commit())
        self.assertEqual(self.box.run(self.positions.committed(queue(0))), 0)

    def test_a_seek_back_is_committed_after_a_commit_without_an_answer_yet(self) -> None:
        """The earlier commit would otherwise be the group's last one."""
        self.box.run(self.member.commit())
        self.poll()
        self.poll()
        held: list[RemotingCommand] = []

        def answer(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.UPDATE_CONSUMER_OFFSET and not held:
                held.append(command)
                return None
            return self.broker(command)

        self.box.servers[BROKER] = answer
        self.assertEqual(self.committed()[0], 0)
        self.box.engine.tasks.spawn(self.member.commit())
        self.box.settle()
        self.box.run(self.positions.seek(queue(int(held[0].fields()["queueId"])), 0))
        committing = self.box.engine.tasks.spawn(self.member.commit())
        self.box.settle()
        self.assertIsNotNone(self.broker(held[0]))
        self.box.reply(BROKER, held[0], ResponseCode.SUCCESS, None)
        self.box.settle()
        self.assertTrue(committing.is_done)
        self.assertEqual(sorted(self.committed().values()), [0, 5])

    def test_a_seek_to_where_nothing_is_is_an_error(self) -> None:
        """The offset is before the first message, after the end, or in a queue of
        another member.
        """
        self.broker.min_offset = 1
        for offset in (0, 6):
            with self.assertRaises(OptionError):
                self.box.run(self.positions.seek(queue(0), offset))
        with self.assertRaises(NotAssigned):
            self.box.run(self.positions.seek(queue(7), 1))
        with self.assertRaises(NotAssigned):
            self.positions.position(queue(7))
        with self.assertRaises(OptionError):
            self.box.run(self.assignment.assign([queue(0)]))
