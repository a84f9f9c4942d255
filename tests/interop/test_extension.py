"""A store with extensions of its queues goes from Apache's broker to ours and back."""

from __future__ import annotations

import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.broker.store.test_inspect import check
from tests.interop import clients
from tests.interop.contents import QUEUES, TOPICS, Contents, differences
from tests.interop.exchange import Exchange, committed_offset, fill
from tests.interop.servers import free_port
from twistmq.broker.store.inspect.report import Report
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import pull_header, records_of
from twistmq.plugins.admin.queues import ConsumeQueueData, QueryConsumeQueueResponseBody
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.headers.query import QueryConsumeQueueRequestHeader

VERSION = "5.3.3"
COUNT = 500
EVERY = 20
#: So small that units go over several files.
SETTINGS = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "512"}
OFF = {"enableConsumeQueueExt": "false", "mappedFileSizeConsumeQueueExt": "512"}
#: The tag of the batches, two tags of other messages, and a tag that no message has.
TAGS = ("batch", "tag3", "Ä", "none")


def pulled(client: RawClient, topic: str, tag: str) -> set[int]:
    """Return the positions of the messages that a consumer of one tag gets."""
    places: set[int] = set()
    for queue_id in range(QUEUES):
        offset, code = 0, ResponseCode.SUCCESS
        while code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
            reply = client.request(RequestCode.PULL_MESSAGE, pull_header(
                topic, offset, queue_id=queue_id, expression=tag))
            code = ResponseCode(reply.code)
            if code == ResponseCode.SUCCESS:
                places |= {each.physical_offset for each in records_of(reply.body)}
            offset = reply.header(PullMessageResponseHeader).next_begin_offset
    return places


def entries(client: RawClient) -> list[ConsumeQueueData]:
    """Return a broker's description of the entries of one queue."""
    reply = client.request(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader(
        topic=TOPICS[0], queue_id=0, index=0, count=1000))
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    rows = QueryConsumeQueueResponseBody.decode(reply.body).queue_data
    assert rows
    return rows


class ExtensionTests(SynchronousTestCase):
    """Ours and Apache's over one folder."""

    def setUp(self) -> None:
        reason = clients.java_missing(VERSION)
        if reason:
            raise SkipTest(reason)
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.exchange = Exchange(
            Path(folder.name), free_port(), VERSION, dict(SETTINGS))
        self.store = Path(folder.name) / "store"
        #: Whether Apache's broker has opened the store after a crash.
        self.may_lack_keys = False
        #: Whether the brokers are killed: what they save at times is waited for then.
        self.kill = False

    def check(self) -> Report:
        """Check the store's files; nothing of queues and extensions may disagree."""
        lines, report = check(self.store)
        # A broker of Apache's that was killed may leave records without index items.
        self.assertEqual([line for line in lines if "index item" not in line], [])
        return report

    def long_stopped(self) -> None:
        """There and back, each stopped as it should be: every entry has its unit, and no other."""
        self.there_and_back(kill=False)
        counts = self.check().counts
        self.assertGreater(counts["extension files"], 20)
        self.assertEqual((counts["entries with a unit"], counts["extension units"]),
                         (counts["queue entries"], counts["queue entries"]))

    def test_both_brokers_open_the_extensions_of_a_killed_one(self) -> None:
        """There and back, each killed after its last acknowledgement."""
        self.there_and_back(kill=True)

    def there_and_back(self, kill: bool) -> None:
        """Each broker fills the store, and reads the data of the other one."""
        self.kill = kill
        last = self.exchange.apache(lambda client: self.filled(client, 0, "all"), kill)
        self.check()
        last = self.exchange.ours(lambda client: self.read_on(client, last), kill)
        self.check()
        self.may_lack_keys = kill
        last = self.exchange.apache(lambda client: self.read_on(client, last), kill)
        self.exchange.ours(lambda client: self.read_on(client, last))

    def long_switched_off_and_on(self) -> None:
        """One queue has entries with and without units."""
        exchange = self.exchange
        last = exchange.apache(lambda client: self.filled(client, 0, "all"))
        exchange.set(OFF)
        last = exchange.ours(lambda client: self.read_on(client, last))
        last = exchange.apache(lambda client: self.read_on(client, last, sees_units=False))
        exchange.set(SETTINGS)
        last = exchange.ours(lambda client: self.read_on(client, last))
        exchange.apache(lambda client: self.read_on(client, last))
        counts = self.check().counts
        self.assertGreater(counts["entries with a unit"], 3 * COUNT)
        self.assertGreater(counts["queue entries"] - counts["entries with a unit"], 2 * COUNT)

    def filled(
        self, client: RawClient, first: int, kinds: str, sees_units: bool = True
    ) -> tuple[Contents, list[ConsumeQueueData]]:
        """Fill the store; :returns: its visible content."""
        fill(client, COUNT, first, kinds)
        if self.kill:
            self.exchange.wait_for_offsets(committed_offset(first))
        contents = Contents.read(client, EVERY)
        contents.may_lack_keys = self.may_lack_keys
        for topic in TOPICS:
            for tag in TAGS:
                wanted = {each.physical_offset for key, each in contents.records.items()
                          if key[0] == topic and each.properties_map().get("TAGS") == tag}
                found = pulled(client, topic, tag)
                # What has a unit that the broker does not see is for the client to decide.
                self.assertTrue(wanted == found if sees_units else wanted < found,
                                msg=f"{topic} {tag} {wanted ^ found}")
        return contents, entries(client)

    def read_on(
        self, client: RawClient, before: tuple[Contents, list[ConsumeQueueData]],
        sees_units: bool = True,
    ) -> tuple[Contents, list[ConsumeQueueData]]:
        """Compare with the previous broker, then continue."""
        contents, rows = before
        now_found = Contents.read(client, EVERY, contents)
        now_found.may_lack_keys = self.may_lack_keys
        self.assertEqual(differences(contents, now_found), [])
        for row, now in zip(rows, entries(client), strict=False):
            if row.extend_data_json and now.extend_data_json:
                self.assertEqual(row, now)
            else:
                self.assertEqual((row.physic_offset, row.physic_size),
                                 (now.physic_offset, now.physic_size))
        return self.filled(client, len(contents.records), "plain", sees_units)
