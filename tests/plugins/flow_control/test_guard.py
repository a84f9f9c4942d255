"""The requests that are refused when the broker is overloaded, and the remarks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import flow_control
from twistmq.plugins.flow_control.guard import PAGE_CACHE, SWITCH
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, decode_command, encode_request
from twistmq.protocol.frame import JSON, ROCKETMQ, Frame, FrameDecoder

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
REJECT = "[REJECTREQUEST]system busy, start flow control for a while"
OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"


class Waiting:
    """The waiting requests, in place of the connections."""

    def __init__(self, requests: int = 0, size: int = 0, connections: int = 1) -> None:
        self.request_count, self.size_bytes = requests, size
        self.connection_count = connections

    def head_wait_ms(self) -> int:
        return 17

    def frames(self) -> Iterator[Frame]:
        return iter(frames(*[SEND] * self.request_count))


class These(Waiting):
    """A number of waiting requests."""

    def __init__(self, found: list[Frame]) -> None:
        super().__init__(len(found))
        self._found = found

    def frames(self) -> Iterator[Frame]:
        return iter(self._found)


def frames(*codes: int, oneway: bool = False, first: int = 0) -> list[Frame]:
    return FrameDecoder().feed(b"".join(
        encode_request(code, first + opaque, oneway=oneway) for opaque, code in enumerate(codes)))


def passed(answer: tuple[Sequence[Frame], Sequence[bytes]]) -> list[int]:
    return [decode_command(frame).opaque for frame in answer[0]]


def refusals(answer: tuple[Sequence[Frame], Sequence[bytes]]) -> list[RemotingCommand]:
    decoder = FrameDecoder()
    return [decode_command(frame) for data in answer[1] for frame in decoder.feed(data)]


class GuardTestCase(SynchronousTestCase):
    """The flow control of a broker."""

    def make(self, **settings: str) -> None:
        self.box = KernelBox([("flow_control", flow_control.Plugin)], settings)
        self.addCleanup(self.box.stop)
        self.control = self.box.plugin(flow_control.Plugin).control
        self.assertIs(self.box.kernel.providers.flow_control, self.control)

    def set(self, **settings: str) -> None:
        self.box.settings.update(settings)


class TimeoutTests(GuardTestCase):
    """Requests that waited for too long."""

    def setUp(self) -> None:
        self.make()

    def due(self, waited_ms: int, *codes: int, waiting: int = 0) -> Any:
        return self.control.due(frames(*codes), waited_ms, Waiting(waiting))

    def test_values_of_apache(self) -> None:
        """Two settings that other tests change have the defaults of Apache."""
        settings = self.box.kernel.settings
        self.assertEqual((settings.flag(SWITCH), settings.int(PAGE_CACHE)), (True, 1000))

    def test_system_busy_with_how_long_it_waited_and_how_many_wait_behind(self) -> None:
        """SYSTEM_BUSY, with how long it waited and how many wait behind it."""
        answer = self.due(201, SEND, SEND, waiting=40)
        self.assertEqual(passed(answer), [])
        self.assertEqual([(r.opaque, r.code, r.remark) for r in refusals(answer)], [
            (opaque, ResponseCode.SYSTEM_BUSY,
             "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
             f"201ms, size of queue: {41 - opaque}") for opaque in (0, 1)])

    def test_each_kind_of_request_has_its_time_limit(self) -> None:
        """Each kind of request has its limit; a kind without one is always served."""
        limits = {SEND: 200, RequestCode.CONSUMER_SEND_MSG_BACK: 200, PULL: 5000,
                  RequestCode.LITE_PULL_MESSAGE: 5000, RequestCode.HEART_BEAT: 31_000,
                  RequestCode.END_TRANSACTION: 3000, RequestCode.ACK_MESSAGE: 3000,
                  RequestCode.GET_BROKER_RUNTIME_INFO: 5000, 99_999: 5000}
        for code, limit_ms in limits.items():
            self.assertEqual(passed(self.due(limit_ms - 1, code)), [0], msg=str(code))
            self.assertEqual(passed(self.due(limit_ms, code)), [], msg=str(code))
        for code in (RequestCode.QUERY_MESSAGE, RequestCode.UNREGISTER_CLIENT,
                     RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.SEND_REPLY_MESSAGE):
            self.assertEqual(passed(self.due(3_600_000, code)), [0], msg=str(code))

    def test_binary_headers(self) -> None:
        """Requests with binary headers are recognised as those with JSON headers are."""
        binary = FrameDecoder().feed(b"".join(
            encode_request(code, opaque, serialize_type=ROCKETMQ)
            for opaque, code in enumerate((PULL, SEND, RequestCode.HEART_BEAT))))
        answer = self.control.due(binary, 200, Waiting())
        self.assertEqual(passed(answer), [0, 2])
        self.assertEqual([(r.opaque, r.code) for r in refusals(answer)], [(1, 2)])
        short = (ROCKETMQ, b"\x01\x36", b"")
        self.assertEqual(self.control.due([short], 200, Waiting()), ([short], []))

    def test_others_pass(self) -> None:
        """Only requests that waited longer than the limit of their kind are refused."""
        answer = self.due(200, PULL, SEND, RequestCode.HEART_BEAT)
        self.assertEqual(passed(answer), [0, 2])
        self.assertEqual([r.opaque for r in refusals(answer)], [1])

    def test_a_refused_one_way_request_is_counted_and_not_answered(self) -> None:
        """A one-way request is refused and counted without a response."""
        answer = self.control.due(frames(SEND, oneway=True), 200, Waiting())
        self.assertEqual(answer, ([], []))
        self.assertEqual(self.control.refused["TIMEOUT_CLEAN_QUEUE"], 1)

    def test_what_is_no_request(self) -> None:
        """A response, and a header that cannot be read, are left to the handlers."""
        response = decode_command(frames(SEND)[0])
        self.assertFalse(response.is_response)
        answers = [(JSON, b'{"code":0,"flag":1,"opaque":4}', b""), (JSON, b"{", b"")]
        for waited_ms in (200, 31_000):
            self.assertEqual(self.control.due(answers, waited_ms, Waiting()), (answers, []))
        self.assertEqual(self.control.reject(answers), (answers, []))

    def test_times_change_while_the_broker_runs(self) -> None:
        """Limits can be changed while the broker runs; with the switch off no
        request is refused.
        """
        self.set(waitTimeMillsInSendQueue="50")
        self.assertEqual(passed(self.due(50, SEND)), [])
        self.set(brokerFastFailureEnable="false")
        self.assertEqual(passed(self.due(60_000, SEND)), [0])


class OverloadTests(GuardTestCase):
    """Too many waiting requests."""

    def setUp(self) -> None:
        self.make(sendThreadPoolQueueCapacity="10", adminBrokerThreadPoolQueueCapacity="20",
                  pullThreadPoolQueueCapacity="30", **{"flow_control.queue_bytes_max": "1000"})

    def test_sends_are_refused_when_so_many_wait(self) -> None:
        """Sends are refused when so many wait, other kinds when more do."""
        answer = self.control.arrived(frames(*[SEND] * 6), 8, Waiting(8))
        self.assertEqual(passed(answer), [0, 1])
        self.assertEqual({(r.code, r.remark) for r in refusals(answer)},
                         {(ResponseCode.SYSTEM_BUSY, OVERLOAD)})
        for waiting, count in ((19, 1), (20, 0)):
            answer = self.control.arrived(frames(RequestCode.GET_BROKER_CONFIG), 20,
                                          Waiting(waiting))
            self.assertEqual(len(passed(answer)), count)
        for waiting, count in ((29, 1), (30, 0)):
            self.assertEqual(
                len(passed(self.control.arrived(frames(PULL), 20, Waiting(waiting)))), count)

    def test_below_the_limit_no_header_is_read(self) -> None:
        """Below the limit no header is read."""
        several = frames(*[SEND] * 10)
        self.assertEqual(self.control.arrived(several, 0, Waiting(0)), (several, ()))
        self.assertEqual(self.control.refused, {})

    def test_a_connection_below_its_share_is_not_refused(self) -> None:
        """A connection below its share is not refused because of the requests of another one."""
        for own, count in ((0, 2), (1, 1), (2, 0), (9, 0)):
            answer = self.control.arrived(frames(SEND, SEND), own, Waiting(10, connections=4))
            self.assertEqual(len(passed(answer)), count, msg=str(own))

    def test_sends_are_refused_when_too_many_bytes_wait(self) -> None:
        """If the waiting requests are too large, sends are refused, and only sends."""
        answer = self.control.arrived(frames(SEND, PULL), 0, Waiting(1, 1000))
        self.assertEqual(passed(answer), [1])
        self.assertEqual([r.remark for r in refusals(answer)], [OVERLOAD])


class RejectTests(GuardTestCase):
    """A disk that does not accept writes, and a slave."""

    def setUp(self) -> None:
        self.make(osPageCacheBusyTimeOutMills="300")

    def slow_append(self, elapsed_ms: int) -> None:
        """An append that took so long, as the store counts it."""
        self.box.kernel.store.stats.put(1, 100, elapsed_ms)
        self.box.now_ms += elapsed_ms

    def round(self) -> bool:
        self.control.begin_round(Waiting())
        return self.control.rejects

    def test_slow_append(self) -> None:
        """Sends that waited for a slow append are refused, and so are the next ones for a while."""
        self.assertFalse(self.round())
        self.slow_append(300)
        self.assertFalse(self.round(), msg="no longer than it may")
        self.slow_append(301)
        self.assertTrue(self.round())
        answer = self.control.due(frames(SEND, PULL), 3, Waiting(5))
        self.assertEqual(passed(answer), [1])
        self.assertEqual(
            [(r.code, r.remark) for r in refusals(answer)],
            [(ResponseCode.SYSTEM_BUSY, "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a "
              "while, period in queue: 3ms, size of queue: 6")])
        answer = self.control.reject(frames(SEND, PULL, RequestCode.SEND_BATCH_MESSAGE))
        self.assertEqual(passed(answer), [1])
        self.assertEqual([(r.code, r.remark) for r in refusals(answer)],
                         [(ResponseCode.SYSTEM_BUSY, REJECT)] * 2)
        self.box.now_ms += 11
        self.assertFalse(self.round())
        self.assertEqual(passed(self.control.due(frames(SEND), 3, Waiting())), [0],
                         msg="it came after the append")
        self.assertEqual(passed(self.control.due(frames(SEND), 12, Waiting())), [])

    def test_without_fast_failure_waiting_requests_are_served(self) -> None:
        """Without fast failure waiting requests are served; sends are still rejected."""
        self.set(brokerFastFailureEnable="false")
        self.slow_append(1400)
        self.assertTrue(self.round())
        self.assertEqual(passed(self.control.due(frames(SEND), 3, Waiting())), [0])

    def test_a_slave_takes_no_sends(self) -> None:
        """A slave refuses sends, and with slaveReadEnable=false pulls; a master accepts both."""
        kernel = self.box.kernel
        kernel.set_role("SLAVE", 1)
        self.assertTrue(self.round())
        several = frames(SEND, PULL, RequestCode.LITE_PULL_MESSAGE, RequestCode.HEART_BEAT,
                         RequestCode.RECALL_MESSAGE)
        self.assertEqual(passed(self.control.reject(several)), [3, 4])
        self.set(slaveReadEnable="true")
        self.assertEqual(passed(self.control.reject(several)), [1, 2, 3, 4])
        kernel.identity.enable_acting_master = True
        self.assertEqual(passed(self.control.reject(several)), [0, 1, 2, 3, 4],
                         msg="the store refuses it")
        self.set(slaveReadEnable="false")
        self.assertEqual(passed(self.control.reject(several)), [0, 3, 4])
        kernel.set_role("ASYNC_MASTER", 0)
        self.assertFalse(self.round())

    def test_no_pool(self) -> None:
        """The broker has no pool of buffers that could be exhausted, whatever the settings say."""
        self.make(transientStorePoolEnable="true", transientStorePoolSize="1")
        self.assertFalse(self.round())


class PeopleTests(GuardTestCase):
    """The information for operators."""

    def test_runtime_rows(self) -> None:
        """The rows of the send queue are real ones, and refusals are counted by their words."""
        self.make()
        info = self.box.kernel.hooks.runtime_info()
        self.assertEqual(info["sendThreadPoolQueueSize"], "0")
        self.control.begin_round(Waiting(5))
        self.control.due(frames(SEND, SEND), 500, Waiting())
        info = self.box.kernel.hooks.runtime_info()
        self.assertEqual(
            {name: value for name, value in info.items()
             if re.search("send|_CLEAN|OVERLOAD", name)},
            {"sendThreadPoolQueueSize": "5", "sendThreadPoolQueueHeadWaitTimeMills": "17",
             "sendThreadPoolQueueCapacity": "10000", "flowControl_OVERLOAD": "0",
             "flowControl_TIMEOUT_CLEAN_QUEUE": "2", "flowControl_PCBUSY_CLEAN_QUEUE": "0"})

    def test_rows_of_all_queues(self) -> None:
        """The table has the waiting requests of each kind, limited as the settings say."""
        self.make(ackThreadPoolQueueCapacity="77")
        waiting = These([frame for code in (
            RequestCode.PULL_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.ACK_MESSAGE,
            RequestCode.LITE_PULL_MESSAGE, RequestCode.END_TRANSACTION,
            RequestCode.VIEW_MESSAGE_BY_ID) for frame in frames(code)])
        self.control.begin_round(waiting)
        info = self.box.kernel.hooks.runtime_info()
        self.assertEqual({name: info[f"{name}QueueSize"] for name in (
            "sendThreadPool", "pullThreadPool", "litePullThreadPool", "queryThreadPool",
            "ackThreadPool", "EndTransaction")}, {
                "sendThreadPool": "6", "pullThreadPool": "2", "litePullThreadPool": "1",
                "queryThreadPool": "1", "ackThreadPool": "1", "EndTransaction": "1"})
        self.assertEqual(info["ackThreadPoolQueueHeadWaitTimeMills"], "17")
        self.assertEqual(info["ackThreadPoolQueueCapacity"], "77")
        self.assertEqual(info["EndTransactionThreadPoolQueueCapacity"], "100000")
        self.control.begin_round(These([]))
        info = self.box.kernel.hooks.runtime_info()
        self.assertEqual({value for name, value in info.items() if name.endswith(
            ("QueueSize", "HeadWaitTimeMills"))}, {"0"})

    def test_a_scrape_shows_the_waiting_requests(self) -> None:
        """A scrape has the number of requests that wait at that moment."""
        self.make()
        self.control.begin_round(Waiting(5))
        [family] = self.box.kernel.hooks.metrics().values()
        self.assertEqual(family.name, "rocketmq_processor_watermark")
        self.assertEqual(dict(family.samples)["send",], 5)

    def test_a_line_now_and_then_says_how_many_were_refused_since_the_last(self) -> None:
        """A log line from time to time has the number of refusals since the last one."""
        self.make()
        lines: list[str] = []
        self.patch(self.control, "log", type("Log", (), {
            "warn": lambda _, text, **fields: lines.append(text.format(**fields))})())
        self.control.log_refusals(0)
        self.control.due(frames(SEND, SEND), 500, Waiting())
        self.control.log_refusals(0)
        self.control.log_refusals(0)
        self.assertEqual(lines, ["overload: requests refused since the last such line: 2 "
                                 "TIMEOUT_CLEAN_QUEUE"])
