"""The mode of a group, pull or pop."""

from __future__ import annotations

import json

from tests.plugins.pop.case import PopTestCase
from twistmq.plugins.pop import request_mode
from twistmq.plugins.pop.request_mode import RequestMode, RequestModes
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import StoreDamaged, WireError
from twistmq.protocol.json_writer import encode_pretty_row

FILE = "/store/config/messageRequestMode.json"


class ModeTests(PopTestCase):
    """The request SET_MESSAGE_REQUEST_MODE and its effects."""

    def set_mode(
        self, topic: str = "T", group: str = "g", mode: str = "POP", share: int = 8
    ) -> int:
        return self.box.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps({
            "topic": topic, "consumerGroup": group, "mode": mode,
            "popShareQueueNum": share}).encode()).code

    def mode(self, topic: str = "T", group: str = "g") -> tuple[RequestMode, int]:
        found = self.service.modes.mode_of(topic, group)
        return found.mode, found.pop_share_queue_num

    def test_a_mode_holds_at_once_and_after_a_kill(self) -> None:
        """A mode applies immediately and after a kill, until it is set again."""
        self.send(b"x")
        self.assertEqual(self.mode(), (RequestMode.PULL, 0))
        self.assertEqual(self.set_mode(), ResponseCode.SUCCESS)
        self.assertEqual(self.mode(), (RequestMode.POP, 8))
        self.after_kill()
        self.assertEqual((self.mode(), self.mode(group="other")),
                         ((RequestMode.POP, 8), (RequestMode.PULL, 0)))
        self.set_mode(mode="PULL", share=0)
        self.assertEqual(self.mode(), (RequestMode.PULL, 0))

    def test_file_and_answer(self) -> None:
        """The file and the response have the same bytes as in Apache 5.3.3."""
        self.send(b"x")
        self.set_mode()
        self.assertEqual(self.disk.read_file(FILE).decode(), (
            '{\n\t"messageRequestModeMap":{\n\t\t"T":{\n\t\t\t"g":{\n\t\t\t\t"consumerGroup":"g",\n'
            '\t\t\t\t"mode":"POP",\n\t\t\t\t"popShareQueueNum":8,\n\t\t\t\t"topic":"T"\n\t\t\t}\n'
            '\t\t}\n\t}\n}'))
        reply = self.box.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        self.assertEqual(reply.body, b'{"messageRequestModeMap":{"T":{"g":{"consumerGroup":"g",'
                                     b'"mode":"POP","popShareQueueNum":8,"topic":"T"}}}}')

    def test_a_slave_has_the_modes_of_its_master(self) -> None:
        """A slave saves modes that differ, and refuses an invalid table."""
        self.send(b"x")
        self.set_mode()
        [table] = [table for table in self.box.kernel.hooks.collect_synced_tables()
                   if table.code == RequestCode.GET_ALL_MESSAGE_REQUEST_MODE]
        body = self.box.ask(table.code).body
        self.set_mode(mode="PULL", share=0)
        table.take(body)
        self.assertEqual(self.mode(), (RequestMode.POP, 8))
        saved = self.disk.read_file(FILE)
        self.assertIn(b'"mode":"POP"', saved)
        for bad in (b"", b"[]", b'{"messageRequestModeMap":7}'):
            self.assertRaises(WireError, table.take, bad)
        self.disk.fail_write_in = 1
        table.take(body)
        self.disk.fail_write_in = None
        self.assertEqual(self.mode(), (RequestMode.POP, 8))

    def test_refusals_have_apaches_codes(self) -> None:
        """Each refusal has the code of Apache's broker."""
        self.send(b"x")
        self.assertEqual(self.set_mode("no"), ResponseCode.TOPIC_NOT_EXIST)
        self.assertEqual(self.set_mode("%RETRY%g"), ResponseCode.NO_PERMISSION)
        self.assertEqual(self.set_mode(mode="PUSH"), ResponseCode.SYSTEM_ERROR)
        self.restart(autoCreateSubscriptionGroup="false")
        self.assertEqual(self.set_mode(group="no"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)

    def test_without_a_mode_the_default_holds_and_retry_topics_are_pulled(self) -> None:
        """A default applies to groups without a mode; retry topics are pulled."""
        self.restart(defaultMessageRequestMode="POP", defaultPopShareQueueNum="3")
        self.assertEqual(self.mode(), (RequestMode.POP, 3))
        self.assertEqual(self.mode("%RETRY%g"), (RequestMode.PULL, 0))

    def test_topics_and_groups_that_are_gone_are_forgotten_with_the_next(self) -> None:
        """Deleted topics and groups are removed with the next change."""
        for topic in ("T", "U"):
            self.send(b"x", topic)
            for group in ("g", "h"):
                self.set_mode(topic, group)
        self.box.kernel.topic_config.delete("U")
        self.box.kernel.subscription_group.delete("h")
        self.set_mode()
        table = self.service.modes._table
        self.assertEqual({topic: sorted(groups) for topic, groups in table.items()}, {"T": ["g"]})
        self.assertNotIn(b'"h"', self.disk.read_file(FILE))

    def test_all_modes_together_have_a_limit(self) -> None:
        """A new mode above the limit is refused, unless it replaces another one."""
        self.send(b"x")
        self.patch(request_mode, "MODES_SIZE_MAX", 350)
        self.assertEqual([self.set_mode(group=group) for group in ("a", "b", "c", "d")],
                         [ResponseCode.SUCCESS] * 3 + [ResponseCode.SYSTEM_ERROR])
        self.assertEqual(self.mode(group="d"), (RequestMode.PULL, 0))
        self.assertEqual(self.set_mode(group="a", share=3), ResponseCode.SUCCESS)
        self.box.kernel.subscription_group.delete("b")
        self.assertEqual(self.set_mode(group="d"), ResponseCode.SUCCESS)
        self.restart()
        self.assertEqual(self.set_mode(group="e"), ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.set_mode(group="d", share=5), ResponseCode.SUCCESS)

    def test_a_change_encodes_the_modes_of_its_topic_only(self) -> None:
        """The rows of other topics are kept as they were encoded."""
        for topic in ("T", "U", "V"):
            self.send(b"x", topic)
            self.set_mode(topic)
        encoded: list[str] = []
        self.patch(request_mode, "encode_pretty_row", lambda topic, groups: encoded.append(topic)
                   or encode_pretty_row(topic, groups))
        self.set_mode("U", share=2)
        self.assertEqual(encoded, ["U"])
        self.after_kill()
        self.assertEqual([self.mode(topic)[1] for topic in ("T", "U", "V")], [8, 2, 8])

    def test_a_mode_that_cannot_be_saved_is_refused(self) -> None:
        """The tool gets an error, because a restart would lose the mode."""
        self.send(b"x")
        self.set_mode()
        self.disk.fail_write_in = 1
        self.assertEqual(self.set_mode(share=2), ResponseCode.SYSTEM_ERROR)
        self.disk.fail_write_in = None
        self.assertEqual(self.set_mode(share=3), ResponseCode.SUCCESS)

    def test_a_file_that_cannot_be_read_stops_the_start(self) -> None:
        """A file that cannot be read stops the start."""
        self.disk.make_directory("/store/config")
        self.disk.write_file_atomically(FILE, b"[", keep_backup=False)
        self.assertRaises(StoreDamaged, RequestModes(self.box.kernel).load)
