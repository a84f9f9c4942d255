"""Requests about the replication of a master and of a slave."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import ha
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.admin import (
    NotifyMinBrokerIdChangeRequestHeader,
    ResetMasterFlushOffsetHeader,
)

#: What a master without slaves answers to 907 at 5.3.3, but for the offset.
APACHE: dict[str, Any] = {
    "haClientRuntimeInfo": {
        "lastReadTimestamp": 0, "lastWriteTimestamp": 0,
        "masterFlushOffset": 0, "maxOffset": 0, "transferredByteInSecond": 0,
    },
    "haConnectionInfo": [], "inSyncSlaveNums": 0, "master": True,
}


class ReplicationTests(SynchronousTestCase):
    """The requests 905, 907 and 908."""

    def box(self, **settings: str) -> KernelBox:
        box = KernelBox([("ha", ha.Plugin)], settings)
        self.addCleanup(box.stop)
        return box

    def test_status_of_a_master(self) -> None:
        """The master has no slaves, and reports the end of its log."""
        box = self.box()
        box.kernel.append([message("T")])
        reply = box.ask(RequestCode.GET_BROKER_HA_STATUS)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        end = box.kernel.store.commit_log.max_offset
        self.assertGreater(end, 0)
        self.assertEqual(json.loads(reply.body), {**APACHE, "masterCommitLogMaxOffset": end})

    def test_what_is_for_slaves(self) -> None:
        """A master accepts the request and does nothing."""
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

    def test_a_slave_tells_of_itself(self) -> None:
        """A slave reports its progress and the data that it got from its master."""
        box = self.box(brokerRole="SLAVE", brokerId="1")
        self.assertEqual(box.ask(
            RequestCode.RESET_MASTER_FLUSH_OFFSET,
            ResetMasterFlushOffsetHeader(master_flush_offset=77)).code, ResponseCode.SUCCESS)
        self.assertEqual(box.ask(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
                                 NotifyMinBrokerIdChangeRequestHeader(
                                     min_broker_id=1, broker_name="a")).code, 0)
        answer = json.loads(box.ask(RequestCode.GET_BROKER_HA_STATUS).body)
        self.assertEqual(answer, {**APACHE, "master": False, "masterCommitLogMaxOffset": 0,
                                  "haClientRuntimeInfo": {
                                      **APACHE["haClientRuntimeInfo"], "activated": False,
                                      "masterFlushOffset": 77}})
