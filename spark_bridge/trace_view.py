"""One row for each message, joined from its trace events: send, commit, consumption and latency.

    from twistmq.spark_bridge.trace_view import messages_of_traces
    messages_of_traces(spark.read.format("rocketmq_trace").option(...).load())

The function takes a DataFrame that is read as a batch. A streaming query can call it for each of
its micro-batches with ``foreachBatch``; each row then covers only the events in that micro-batch.

Source: QueryMsgTraceByIdSubCommand, TraceView @5.3.3, which define the events of a message.
"""

from __future__ import annotations

from typing import Any

__all__ = ["messages_of_traces"]


def messages_of_traces(events: Any) -> Any:
    """Join the trace events of each message.

    :param events: a DataFrame of ``format("rocketmq_trace")``.
    :returns: a DataFrame with one row for each message id; see spark_bridge/README.md. If a message
        was sent several times, the first successful send counts; if its transaction ended several
        times, the last end counts. ``endToEndMs`` is the time from the start of that send to the
        end of the first successful consumption. It is null when either time is unknown.
    """
    from pyspark.sql import functions as f

    sent = _sent(events)
    ended = _ended(events)
    consumed = _consumed(events)
    joined = sent.join(ended, "msgId", "full").join(consumed, "msgId", "full")
    latency = _ms(f.col("firstConsumedTime")) - _ms(f.col("sendTime"))
    return joined.select(
        "msgId", "topic", "tags", "keys", "msgType", "producerGroup", "producerHost", "storeHost",
        "offsetMsgId", "bodyLength", "sendTime", "sendCostMs", "sendSuccess", "sendCount",
        "transactionId", "transactionState", "transactionTime", "fromCheck",
        f.coalesce("consumeCount", f.lit(0)).alias("consumeCount"),
        f.coalesce("failedCount", f.lit(0)).alias("failedCount"),
        "firstConsumeTime", "firstConsumedTime", "consumptions",
        latency.alias("endToEndMs"))


def _ms(column: Any) -> Any:
    from pyspark.sql import functions as f

    return f.unix_millis(column)


def _sent(events: Any) -> Any:
    """Return a row for each message that was sent; the record of a batch lists all its ids."""
    from pyspark.sql import functions as f

    each = events.where("traceType = 'Pub'").withColumn(
        "msgId", f.explode(f.split("msgId", ",")))
    fields = f.struct(
        "topic", "tags", "keys", "msgType", f.col("group").alias("producerGroup"),
        f.col("clientHost").alias("producerHost"), "storeHost", "offsetMsgId", "bodyLength",
        f.col("time").alias("sendTime"), f.col("costMs").alias("sendCostMs"),
        f.col("success").alias("sendSuccess"))
    order = f.struct((~f.col("success")).alias("failed"), "time")
    best = each.groupBy("msgId").agg(
        f.min_by(fields, order).alias("sent"), f.count("*").alias("sendCount"))
    return best.select("msgId", "sent.*", "sendCount")


def _ended(events: Any) -> Any:
    """Return a row for each message whose transaction was ended."""
    from pyspark.sql import functions as f

    fields = f.struct("transactionId", "transactionState",
                      f.col("time").alias("transactionTime"), "fromCheck")
    last = events.where("traceType = 'EndTransaction'").groupBy("msgId").agg(
        f.max_by(fields, "time").alias("ended"))
    return last.select("msgId", "ended.*")


def _consumed(events: Any) -> Any:
    """Return a row for each message that was delivered to a consumer."""
    from pyspark.sql import functions as f

    before = events.where("traceType = 'SubBefore'").select(
        "msgId", "requestId", f.col("time").alias("begin"), f.col("group").alias("beginGroup"),
        f.col("clientHost").alias("beginHost"), "retryTimes").dropDuplicates(["msgId", "requestId"])
    after = events.where("traceType = 'SubAfter'").select(
        "msgId", "requestId", f.col("time").alias("end"), f.col("group").alias("endGroup"),
        f.col("clientHost").alias("endHost"), "costMs", "success", "contextCode",
    ).dropDuplicates(["msgId", "requestId"])
    begin_and_cost = f.timestamp_millis(_ms(f.col("begin")) + f.col("costMs"))
    each = before.join(after, ["msgId", "requestId"], "full").select(
        "msgId", f.struct(
            "begin", f.coalesce("end", begin_and_cost).alias("end"),
            f.coalesce("beginGroup", "endGroup").alias("group"),
            f.coalesce("beginHost", "endHost").alias("clientHost"), "costMs", "success",
            "contextCode", "retryTimes").alias("one"))
    done = f.when(f.col("one.success"), f.col("one.end"))
    return each.groupBy("msgId").agg(
        f.count("*").alias("consumeCount"),
        f.count(f.when(~f.col("one.success"), 1)).alias("failedCount"),
        f.min("one.begin").alias("firstConsumeTime"), f.min(done).alias("firstConsumedTime"),
        f.sort_array(f.collect_list("one")).alias("consumptions"))
