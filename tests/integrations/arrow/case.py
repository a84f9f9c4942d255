"""A broker, and methods for the tests of reads."""

from __future__ import annotations

from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.topics import Topics, topics
from twistmq.client import RequestRefused
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from twistmq.protocol.headers.topic import DeleteTopicRequestHeader

__all__ = ["ReadCase"]

#: Short waits for the tests of losses.
SOON: dict[str, Any] = {"deletion_check_ms": 100, "fetch_offset_retry_interval_ms": 20}


class ReadCase(SynchronousTestCase):
    """A test with a broker."""

    #: Settings of the broker.
    settings: ClassVar[dict[str, str]] = {}

    def setUp(self) -> None:
        context = topics(**self.settings)
        self.box: Topics = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.name_servers = self.box.broker.namesrv_address

    def delete(self, topic: str) -> None:
        """Delete a topic from the broker and the name server."""
        address = self.box.client.route(topic).broker_datas[0].broker_addrs[0]
        self.box.client.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER,
                            DeleteTopicRequestHeader(topic=topic))
        try:
            self.box.client.ask_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV,
                                            DeleteTopicFromNamesrvRequestHeader(topic=topic))
        except RequestRefused as error:
            self.assertIn(topic, str(error))
