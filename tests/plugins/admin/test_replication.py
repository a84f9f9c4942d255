"""What is asked of the replication of a master, and of a slave."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.broker.wire.headers.admin import (
    NotifyMinBrokerIdChangeRequestHeader,
    ResetMasterFlushOffsetHeader,
)
from twistmq.plugins import admin

#: What a master without slaves answers to 907 at 5.3.3, but for the offset.
APACHE = {
    "haClientRuntimeInfo": {
        "lastReadTimestamp": 0, "lastWriteTimestamp": 0,
        "masterFlushOffset": 0, "maxOffset": 0, "transferredByteInSecond": 0,
    },
    "haConnectionInfo": [], "inSyncSlaveNums": 0, "master": True,
}


class ReplicationTests(SynchronousTestCase):
    """905, 907 and 908."""

    def box(self, **settings: str) -> KernelBox:
        box = KernelBox([("admin", admin.Plugin)], settings)
        self.addCleanup(box.stop)
        return box

    def test_status_of_a_master(self) -> None:
        """It has no slaves, and tells where its log ends."""
        box = self.box()
        box.kernel.append([message("T")])
        reply = box.ask(RequestCode.GET_BROKER_HA_STATUS)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        end = box.kernel.store.commit_log.max_offset
        self.assertGreater(end, 0)
        self.assertEqual(json.loads(reply.body), {**APACHE, "masterCommitLogMaxOffset": end})

    def test_what_is_for_slaves(self) -> None:
        """A master takes it, and does nothing."""
        box = self.box()
        for code, header in (
            (RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, NotifyMinBrokerIdChangeRequestHeader(
                min_broker_id=1, broker_name="broker-a")),
            (RequestCode.RESET_MASTER_FLUSH_OFFSET, ResetMasterFlushOffsetHeader(
                master_flush_offset=77)),
            (RequestCode.RESET_MASTER_FLUSH_OFFSET, ResetMasterFlushOffsetHeader()),
        ):
            reply = box.ask(code, header)
            self.assertEqual((reply.code, reply.remark, reply.body),
                             (ResponseCode.SUCCESS, None, b""), msg=code.name)
        self.assertEqual(box.kernel.store.commit_log.max_offset, 0)

    def test_a_slave_answers_that_there_is_no_replication(self) -> None:
        """A slave is told that there is no replication."""
        box = self.box(brokerRole="SLAVE", brokerId="1")
        for code in (RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, RequestCode.GET_BROKER_HA_STATUS,
                     RequestCode.RESET_MASTER_FLUSH_OFFSET):
            reply = box.ask(code)
            self.assertEqual((reply.code, reply.remark), (
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "there is no replication here yet"))
