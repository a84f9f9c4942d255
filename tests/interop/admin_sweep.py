"""Every command of mqadmin, in one state of a cluster with one broker.

The same lines are given to mqadmin and to ``twistmq admin``: names and options are the same. The
state is a topic that was sent to and consumed, with a producer and a consumer that stay.

    with state(namesrv, broker) as values:
        for step in STEPS: step.line(values)
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.interop.admin_tour import (
    CONSUMERS,
    PRODUCERS,
    TOPIC,
    wait_for_registration,
    workload,
)
from tests.interop.mqadmin import mqadmin
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import ConsumeStats
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.topic import GetConsumeStatsRequestHeader
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX
from twistmq.tools.admin.messages import find_messages
from twistmq.tools.admin.records import offset_id
from twistmq.tools.admin.session import Session
from twistmq.tools.command_line import main

__all__ = ["STEPS", "Step", "admin_sweep", "differences", "mqadmin_sweep", "shape", "state",
           "steps_of"]

ROOT: Final = Path(__file__).resolve().parents[2]
#: All of mqadmin's commands have ended after this, seconds.
_SWEEP_SECONDS: Final = 400.0
#: A broker answers within this, seconds.
_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Step:
    """A command line.

    :param reason: why one of the tools prints something else of our servers; empty: none does.
    :param admin: whether ``twistmq admin`` has it.
    :param changes: whether it changes something, so that it is run once and not timed alone.
    """

    text: str
    reason: str = ""
    admin: bool = True
    changes: bool = False

    def line(self, values: Mapping[str, str]) -> str:
        """Return the command line for one cluster."""
        return self.text.format_map(values)


def _change(text: str, reason: str = "", admin: bool = True) -> Step:
    return Step(text, reason, admin, changes=True)


#: Why what is told of a topic's groups differs.
_AMONG_GROUPS: Final = "Apache's names a topic that is consumed among the groups that consume it"
_MORE_FIGURES: Final = "figures of flow control beside Apache's"



def _refusal(code: RequestCode) -> str:
    """Return the reason in broker/CODES.md why our servers refuse a code; empty if
    they serve it.
    """
    found = re.search(rf"(?m)^\| {int(code)} \| {code.name} \| (refused[^|]*?) \|",
                      (ROOT / "broker" / "CODES.md").read_text())
    return found[1] if found else ""


#: In an order in which each has what it needs: clients are there until a step says they left.
STEPS: Final[tuple[Step, ...]] = (
    # topic
    _change("updateTopic -b {broker} -t SweepTopic -r 4 -w 4 -p 6"),
    _change("updateTopic -c {cluster} -t SweepOrder -r 4 -w 4 -o true"),
    _change("updateTopicList -b {broker} -f {topics}"),
    _change("updateTopicPerm -c {cluster} -t SweepTopic -p 4"),
    Step("topicList"),
    Step("topicList -c", _AMONG_GROUPS),
    Step("topicRoute -t {topic}"),
    Step("topicRoute -t {topic} -l"),
    Step("topicRoute -t NoSuchTopic"),
    Step("topicStatus -t {topic}"),
    Step("topicClusterList -t {topic}"),
    Step("updateOrderConf -t SweepOrder -m get"),
    _change("updateOrderConf -t SweepOrder -m put -v {name}:2"),
    Step("updateOrderConf -t SweepOrder -m get "),
    _change("updateOrderConf -t SweepOrder -m delete"),
    Step("allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2"),
    # message
    Step("queryMsgByKey -t {topic} -k sweep-key"),
    Step("queryMsgById -t {topic} -i {offset_id}", _AMONG_GROUPS),
    Step("queryMsgById -t {topic} -i {unique_id}", _AMONG_GROUPS),
    Step("queryMsgById -t {topic} -i {offset_id} -g {consumers} -d {client}"),
    Step("queryMsgByUniqueKey -t {topic} -i {unique_id}", _AMONG_GROUPS),
    Step("queryMsgByUniqueKey -t {topic} -i {unique_id} -a", _AMONG_GROUPS),
    Step("queryMsgByOffset -t {topic} -b {name} -i 0 -o 0", _AMONG_GROUPS),
    Step("queryMsgTraceById -i {unique_id}"),
    Step("printMsg -t {topic}"),
    Step("printMsgByQueue -t {topic} -a {name} -i 0 -p true -d true -s tag"),
    Step("printMsgByQueue -t {topic} -a {name} -i 0 -f true -s tag"),
    Step("consumeMessage -t {topic} -b {name} -i 0 -o 0 -c 2"),
    # Only now, and with other tags: to which queue these go is chance.
    _change("queryMsgById -t {topic} -i {offset_id} -s true"),
    _change("sendMessage -t {topic} -p hello -k other-key -c other"),
    _change("checkMsgSendRT -t {topic} -a 4 -s 64"),
    # consumer
    _change("updateSubGroup -b {broker} -g SweepGroup -r 5"),
    _change("updateSubGroupList -c {cluster} -f {groups}"),
    Step("getConsumerConfig -g SweepGroup"),
    Step("consumerProgress"),
    Step("consumerProgress -g {consumers}"),
    Step("consumerProgress -g {consumers} -t {topic} -s true"),
    Step("consumerProgress -g NoSuchGroup"),
    Step("consumerStatus -g {consumers}"),
    Step("consumerStatus -g {consumers} -i {client}"),
    _change("setConsumeMode -b {broker} -t {topic} -g SweepGroup -m PULL -q 0",
            _refusal(RequestCode.SET_MESSAGE_REQUEST_MODE)),
    # connection, producer
    Step("consumerConnection -g {consumers}"),
    Step("consumerConnection -g NoSuchGroup"),
    Step("producerConnection -g {producers} -t {topic}"),
    Step("producerConnection -g NoSuchGroup -t {topic}"),
    Step("producer -b {broker}"),
    # cluster
    Step("clusterList"),
    Step("clusterList -m"),
    _change("clusterRT -a 3 -s 16 -c {cluster}"),
    # broker
    Step("brokerStatus -b {broker}", _MORE_FIGURES),
    Step("brokerStatus -c {cluster}", _MORE_FIGURES),
    Step("brokerConsumeStats -b {broker}"),
    Step("getBrokerConfig -b {broker}", "a broker's own settings beside Apache's"),
    _change("updateBrokerConfig -b {broker} -k fileReservedTime -v 71"),
    _change("updateBrokerConfig -c {cluster} -k fileReservedTime -v 72"),
    _change("cleanExpiredCQ -b {broker}"),
    _change("cleanUnusedTopic -b {broker}"),
    _change("deleteExpiredCommitLog -b {broker}"),
    _change("sendMsgStatus -b {name} -c 2 -s 16"),
    _change("resetMasterFlushOffset -b {broker} -o 0"),
    Step("haStatus -b {broker}"),
    Step("haStatus -c {cluster}"),
    Step("getBrokerEpoch -b {name}", _refusal(RequestCode.GET_BROKER_EPOCH_CACHE), admin=False),
    Step("setCommitLogReadAheadMode -b {broker} -m 0",
         _refusal(RequestCode.SET_COMMITLOG_READ_MODE), admin=False),
    Step("getColdDataFlowCtrInfo -b {broker}",
         _refusal(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO), admin=False),
    Step("updateColdDataFlowCtrGroupConfig -b {broker} -g SweepGroup -v 100",
         _refusal(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG), admin=False),
    Step("removeColdDataFlowCtrGroupConfig -b {broker} -g SweepGroup",
         _refusal(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG),
         admin=False),
    # namesrv
    _change("updateKvConfig -s SweepSpace -k sweep -v value"),
    _change("deleteKvConfig -s SweepSpace -k sweep"),
    _change("wipeWritePerm -b {name}"),
    _change("addWritePerm -b {name}"),
    Step("getNamesrvConfig", "a name server's own settings beside Apache's"),
    _change("updateNamesrvConfig -k enableTopicList -v true"),
    # queue, stats, export
    Step("queryCq -t {topic} -q 0 -i 0 -c 1 -g {consumers}"),
    Step("checkRocksdbCqWriteProgress -c {cluster} -t {topic}",
         _refusal(RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS),
         admin=False),
    Step("statsAll -t {topic}", _AMONG_GROUPS),
    Step("statsAll -a", _AMONG_GROUPS),
    Step("exportConfigs -c {cluster} -f {folder}"),
    Step("exportMetadata -c {cluster} -f {folder}"),
    Step("exportMetadata -b {broker} -f {folder} -t"),
    Step("exportMetrics -c {cluster} -f {folder}"),
    Step("exportPopRecord -b {broker} -d true", admin=False),
    Step("exportPopRecord -b {broker} -d false", admin=False),
    # offset
    _change("resetOffsetByTime -g {consumers} -t {topic} -s now"),
    _change("resetOffsetByTime -g {consumers} -t {topic} -s 0 -b {broker} -q 0 -o 1"),
    _change("resetOffsetByTime -g Sweepers -t {topic} -s now"),
    _change("skipAccumulatedMessage -g {consumers} -t {topic}"),
    _change("cloneGroupOffset -s {consumers} -d SweepGroup -t {topic} -o true"),
    # deletion
    _change("deleteSubGroup -c {cluster} -g SweepGroup -r true"),
    _change("deleteTopic -c {cluster} -t SweepTopic"),
    Step("topicStatus -t SweepTopic"),
)


def steps_of(version: str) -> tuple[Step, ...]:
    """The steps that a release of mqadmin has the commands and options for.

    4.9's queryMsgById takes no topic, and gets none.
    """
    commands = json.loads((ROOT / f"tests/golden/mqadmin-options/{version}.json").read_text())

    def fitting(step: Step) -> Iterator[Step]:
        name, *words = step.text.split()
        if name not in commands:
            return
        missing = {word for word in words if word.startswith("-")} - {
            f"-{option[0]}" for option in commands[name]}
        if not missing:
            yield step
        elif name == "queryMsgById" and missing == {"-t"}:
            yield replace(step, text=step.text.replace(" -t {topic}", ""))

    return tuple(found for step in STEPS for found in fitting(step))


def _has_committed_retries(broker: str) -> bool:
    """Whether the group that consumes has an offset of its retry topic."""
    with RawClient(broker, _PATIENCE_SECONDS) as client:
        reply = client.request(RequestCode.GET_CONSUME_STATS,
                               GetConsumeStatsRequestHeader(consumer_group=CONSUMERS))
    return reply.code == ResponseCode.SUCCESS and any(
        queue.topic == RETRY_GROUP_TOPIC_PREFIX + CONSUMERS
        for queue in ConsumeStats.decode_reply(reply.body).offset_table)


@contextlib.contextmanager
def state(
    namesrv: str, broker: str, *, cluster: str = "DefaultCluster"
) -> Iterator[dict[str, str]]:
    """Bring a new cluster into the state; returns the values for the command lines.

    :param broker: "host:port".
    """
    wait_for_registration(namesrv, broker)
    for text in mqadmin(namesrv, [
            f"updateTopic -b {broker} -t {TOPIC} -r 4 -w 4 -p 6",
            f"updateSubGroup -b {broker} -g {CONSUMERS}", f"updateSubGroup -b {broker} -g Sweepers",
            f"updateTopic -b {broker} -t %RETRY%Sweepers -r 1 -w 1 -p 6"]):
        assert "success" in text, text
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder, workload(namesrv) as client, \
            Session(namesrv) as session:
        from twistmq.tools.admin.send_commands import send_message

        # Its member commits by a timer of its own.
        wait_until("the group's retry topic has an offset", lambda: _has_committed_retries(broker))
        list(send_message(session, topic=TOPIC, body="found", keys="sweep-key", tags="found",
                          broker=session.all_brokers()[0].name, queue=3, trace=False))
        wait_until("the message is indexed", lambda: find_messages(session, TOPIC, "sweep-key"))
        message = find_messages(session, TOPIC, "sweep-key")[0]
        (Path(folder) / "topics.json").write_text(json.dumps([
            {"topicName": f"SweepList{at}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
            for at in range(2)]))
        (Path(folder) / "groups.json").write_text(json.dumps([
            {"groupName": f"SweepListGroup{at}", "retryMaxTimes": 3} for at in range(2)]))
        yield {
            "broker": broker, "namesrv": namesrv, "cluster": cluster, "topic": TOPIC,
            "name": session.all_brokers()[0].name, "consumers": CONSUMERS, "client": client,
            "producers": PRODUCERS, "folder": f"{folder}/export",
            "topics": f"{folder}/topics.json", "groups": f"{folder}/groups.json",
            "offset_id": offset_id(message),
            "unique_id": message.properties_map()["UNIQ_KEY"]}


def mqadmin_sweep(namesrv: str, broker: str, version: str = "5.3.3") -> dict[str, str]:
    """Return the output of mqadmin for each step, by the text of the step."""
    steps = steps_of(version)
    with state(namesrv, broker) as values:
        printed = mqadmin(namesrv, [step.line(values) for step in steps], version=version,
                          timeout=_SWEEP_SECONDS)
    return dict(zip((step.text for step in steps), printed, strict=True))


def admin_sweep(namesrv: str, broker: str) -> dict[str, str]:
    """Return the output and the exit status of ``twistmq admin`` for each step, by its text."""
    found = {}
    with state(namesrv, broker) as values:
        for step in STEPS:
            if step.admin:
                out = io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                    status = main(["admin", *step.line(values).split(), "-n", namesrv])
                found[step.text] = f"{out.getvalue()}exit status: {status}\n"
    return found


#: What differs from run to run, and what stands for it, in this order.
_VOLATILE: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?"), "<time>"),
    (re.compile(r"[\d.]+@\d+#\d+"), "<client>"),
    (re.compile(r"[0-9A-F]{32,56}"), "<id>"),
    (re.compile(r"(?<=@)[0-9a-f]{5,8}\b"), "<object>"),
    (re.compile(r"putMessageDistributeTime\b.*"), "putMessageDistributeTime <counts>"),
    (re.compile(r"\b[\d.]+ ([KMG]i)?B\b"), "<size>"),
    (re.compile(r"\b\d+ms\b"), "<ms>"),
    (re.compile(r"\$\$Lambda\$\d+/0x[0-9a-f]+"), "<lambda>"),
    (re.compile(r"/?127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"/\S+/(sweep-\w+|store|conf)\b\S*"), "<path>"),
    (re.compile(r"(?<![\w.])-?\d+(\.\d+)?(E-?\d+)?(?![\w.])"), "<n>"),
    (re.compile(r"[ \t]{2,}|\t"), "  "),
    (re.compile(r"-{3,}"), "---"),
    # A command before may still be connected, or not.
    (re.compile(r"^TOOLS_CONSUMER\b.*", re.MULTILINE), "TOOLS_CONSUMER <state>"),
)


def differences(apache: str, ours: str) -> list[str]:
    """Return the lines that differ between two outputs; those of Apache's begin with -."""
    theirs, mine = shape(apache), shape(ours)
    return [*[f"-{line}" for line in theirs if line not in mine],
            *[f"+{line}" for line in mine if line not in theirs]]


def shape(text: str) -> list[str]:
    """Return the different lines of an output, in order, with replaced variable parts."""
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    lines = [line.strip() for line in text.splitlines()]
    return sorted({line for line in lines if line})
