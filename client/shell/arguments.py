"""The types of the options for type checkers: the keywords of each class.

``twistmq.client.shell.options`` has a row for each option, and a test compares the names.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from twistmq.client.base.interceptors import Interceptor
from twistmq.client.base.messages import MessageQueue, ReceivedMessage
from twistmq.client.base.times import Time
from twistmq.client.core.consumer.flow_control import PullLimits
from twistmq.client.core.consumer.strategies import Strategy
from twistmq.protocol.signature import Credentials

__all__ = ["ClientArguments", "ConsumerArguments", "MessageArguments", "PopArguments",
           "ProducerArguments", "PullArguments"]


class ClientArguments(TypedDict, total=False):
    """The options of a client."""

    namespace: str
    namespace_v2: bool
    credentials: Credentials | None
    tls: ssl.SSLContext | None
    unit: str
    instance: str
    timeout_s: float
    connect_timeout_s: float
    retries: int
    retry_wait_s: float
    interceptors: Sequence[Interceptor]


class MessageArguments(TypedDict, total=False):
    """The keywords of a message, see :class:`twistmq.client.Message`."""

    tags: str
    keys: Sequence[str]
    sharding_key: str
    properties: Mapping[str, str]
    delay_level: int
    delay_s: float
    deliver_at: Time | None
    priority: int | None
    wait_stored: bool
    flag: int
    sys_flag: int


class ProducerArguments(ClientArguments, total=False):
    """The options of a producer."""

    group: str
    require_safe: bool
    compress_over: int
    codec: Literal["zlib", "lz4", "zstd"]
    in_flight_max: int
    in_flight_bytes_max: int
    auto_batch: bool
    attempt_timeout_s: float | None
    await_master: bool
    avoid_slow: bool
    latency_table: Literal["5.x", "4.9"]
    encode: Callable[[Any], bytes] | None
    on_check: Callable[[ReceivedMessage[Any]], Any] | None
    trace: bool


class ConsumerArguments(ClientArguments, total=False):
    """The options of a consumer, in addition to its group and its topics."""

    mode: Literal["cluster", "broadcast"]
    order: Literal["queue"] | None
    start: Literal["last", "first"] | Time
    strategy: Strategy | None
    max_attempts: int | None
    consume_timeout_s: float
    suspend_s: float
    cache_bytes_max: int
    limits: PullLimits | None
    pull_count: int
    decode: Callable[[ReceivedMessage[Any]], Any] | None
    undecodable: Literal["retry", "skip", "raise"]
    damaged: Literal["skip", "stop", "deliver"]
    auto_acknowledge: bool
    on_assigned: Callable[[list[MessageQueue]], object] | None
    on_lost: Callable[[list[MessageQueue]], object] | None
    offset_folder: Path | str | None
    trace: bool


class PullArguments(ClientArguments, total=False):
    """The options of a consumer that is polled, in addition to its group and its topics."""

    start: Literal["last", "first"] | Time
    strategy: Strategy | None
    cache_bytes_max: int
    limits: PullLimits | None
    pull_count: int
    decode: Callable[[ReceivedMessage[Any]], Any] | None
    damaged: Literal["skip", "stop", "deliver"]
    on_assigned: Callable[[list[MessageQueue]], object] | None
    on_lost: Callable[[list[MessageQueue]], object] | None


class PopArguments(ClientArguments, total=False):
    """The options of a consumer that pops, in addition to its group and its topics."""

    invisible_s: float
    pop_count: int
    in_flight_max: int
    order: Literal["queue"] | None
    start: Literal["last", "first"]
    strategy: Strategy | None
    max_attempts: int | None
    consume_timeout_s: float
    suspend_s: float
    cache_bytes_max: int
    decode: Callable[[ReceivedMessage[Any]], Any] | None
    undecodable: Literal["retry", "skip", "raise"]
    auto_acknowledge: bool
    on_assigned: Callable[[list[MessageQueue]], object] | None
    on_lost: Callable[[list[MessageQueue]], object] | None
    trace: bool
