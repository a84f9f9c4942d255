"""Limits, each with its unit, its reason and its source; their relations are checked at the end."""

from __future__ import annotations

from typing import Final

from twistmq.protocol.frame import FRAME_SIZE_MAX

__all__ = [
    "ATTEMPT_ID_LENGTH_MAX",
    "BATCH_ACK_POINTS_MAX",
    "BATCH_ACK_SIZE_MAX",
    "BATCH_QUEUE_ENTRY_SIZE_BYTES",
    "BODY_SIZE_MAX",
    "BROKERS_OF_NAME_MAX",
    "BROKER_TIMEOUT_MS_MAX",
    "CHANGES_BYTES_FREE",
    "CHANGES_BYTES_MAX",
    "CHECKPOINT_FLUSH_INTERVAL_MS",
    "CHECKPOINT_MARGIN_MS",
    "CHECKPOINT_SIZE_BYTES",
    "CLIENTS_BYTES_TOTAL_MAX",
    "CLIENT_ID_LENGTH_MAX",
    "CLOCK_STEP_MAX_MS",
    "CONNECTION_BYTES_IN_FLIGHT_MAX",
    "CONNECTION_BYTES_UNSENT_FREE",
    "CONNECTION_BYTES_UNSENT_MAX",
    "CONNECTION_CLIENT_BYTES_FREE",
    "CONNECTION_CLIENT_BYTES_MAX",
    "DECODED_BYTES_PER_BYTE",
    "DELETED_TOPICS_MAX",
    "DISPATCH_STEP_BYTES_MAX",
    "DISPATCH_STEP_RECORDS",
    "DISPATCH_WAITING_BYTES_MAX",
    "EXPRESSION_LENGTH_MAX",
    "FIRST_BYTES_SECONDS",
    "FLUSH_STEP_ITEM_BYTES_MAX",
    "FLUSH_STEP_MS",
    "FLUSH_STEP_PAGES_MAX",
    "FLUSH_STEP_TAILS_MAX",
    "FLUSH_URGENT_STEP_MS",
    "GROUP_ROWS_KEPT",
    "GROUP_ROWS_SIZE_MAX",
    "HEADER_SIZE_MAX",
    "HEARTBEAT_SIZE_MAX",
    "HELD_PULLS_FREE",
    "HELD_PULLS_MAX",
    "HELD_REQUEST_BYTES",
    "HOLD_MS_MAX",
    "INDEX_FLUSH_BYTES",
    "INDEX_FLUSH_INTERVAL_MS",
    "INDEX_LOST_BYTES_MAX",
    "KEPT_BYTES_LEAST",
    "KEPT_BYTES_TOTAL_MAX",
    "KV_ENTRY_BYTES",
    "KV_NAME_SIZE_MAX",
    "KV_REPLY_SIZE_MAX",
    "LARGE_BLOCK_BYTES",
    "LOCK_BODY_SIZE_MAX",
    "LOG_FIELD_CHARS_MAX",
    "LOG_LINE_CHARS_MAX",
    "LOG_OFFSET_MAX",
    "LOG_TRACEBACK_LINES_MAX",
    "LONG_HEADER_SIZE_MAX",
    "NAMESRV_BROKERS_MAX",
    "OFFSETS_BYTES_MAX",
    "OPEN_FILES_LEAST",
    "OPEN_LOG_FILES_MAX",
    "OPEN_QUEUE_FILES_MAX",
    "PAGE_SIZE_BYTES",
    "PLACE_KEPT_MS_MAX",
    "PROXY_HEADER_SIZE_MAX",
    "PULL_SIZE_BYTES_MAX",
    "QUEUE_ENTRY_SIZE_BYTES",
    "QUEUE_SYNC_FILES_MAX",
    "QUEUE_SYNC_INTERVAL_MS",
    "QUEUE_SYNC_LOG_BYTES",
    "QUEUE_TAILS_FLUSH_BYTES",
    "QUEUE_TAILS_FLUSH_BYTES_MAX",
    "QUEUE_TAILS_TOTAL_BYTES_MAX",
    "QUEUE_TAILS_URGENT_BYTES",
    "QUEUE_TAIL_LEAST_BYTES",
    "QUEUE_TAIL_WORTH_BYTES",
    "RECEIPT_LENGTH_MAX",
    "ROUTE_MAPPING_BYTES",
    "ROUTE_MAPPING_QUEUE_BYTES",
    "ROUTE_ROW_BYTES",
    "SETTINGS_SIZE_MAX",
    "SINGLE_TOPIC_SIZE_MAX",
    "STALL_SECONDS",
    "STALL_WARN_SECONDS",
    "STATISTICS_MAX",
    "STORE_LOOK_INTERVAL_MS",
    "SUBSCRIPTION_BODY_SIZE_MAX",
    "TABLE_BODY_SIZE_MAX",
    "TLS_HANDSHAKE_BYTES",
    "TLS_HANDSHAKE_SECONDS",
    "TOPIC_QUEUES_MAX",
    "TOPIC_ROWS_KEPT",
    "TOPIC_ROWS_SIZE_MAX",
    "TOTAL_BYTES_IN_FLIGHT_FREE",
    "TOTAL_BYTES_IN_FLIGHT_MAX",
    "TURN_REPLY_BYTES_MAX",
    "TURN_SECONDS",
    "VIP_PORT_DISTANCE",
    "WAITING_BYTES_TOTAL_MAX",
    "WRITE_STALL_MAX_MS",
]

# --- connections

#: The VIP port is the main port minus this number. Source: BrokerController.initialize.
VIP_PORT_DISTANCE: Final = 2
#: Bytes of requests awaiting replies at which one connection stops reading. Twice the largest
#: frame, so that no single request can stop its own connection.
CONNECTION_BYTES_IN_FLIGHT_MAX: Final = 32 * 1024 * 1024
#: The same limit over all connections, for the whole process.
TOTAL_BYTES_IN_FLIGHT_MAX: Final = 128 * 1024 * 1024
#: Bytes that a connection may have in flight even when the total is used up. This is enough for a
#: client with a few hundred queues, so that small clients keep working while large ones exhaust the
#: total.
TOTAL_BYTES_IN_FLIGHT_FREE: Final = 512 * 1024
#: Bytes of requests that wait for their turn, over all connections. At this limit, the broker no
#: longer reads from connections with waiting requests. Flow control refuses sends long before this
#: limit is reached; for other requests this is the only limit.
WAITING_BYTES_TOTAL_MAX: Final = 128 * 1024 * 1024
#: Memory that a waiting request takes in addition to its own bytes: Python objects, measured and
#: rounded up.
HELD_REQUEST_BYTES: Final = 2048
#: Bytes of replies that may wait for a peer before its requests are no longer read.
CONNECTION_BYTES_UNSENT_FREE: Final = 64 * 1024
#: Bytes of replies that may wait for a peer that does not read, before its connection is closed.
#: The peer's requests are not read during this time, so this is the most that the replies of one
#: turn and its woken pulls can add up to.
CONNECTION_BYTES_UNSENT_MAX: Final = 64 * 1024 * 1024
#: Bytes of incomplete frames and of unread replies over all connections. At this limit, the
#: connection that has kept the broker waiting for the longest time is closed.
KEPT_BYTES_TOTAL_MAX: Final = 256 * 1024 * 1024
#: A connection with fewer bytes than this is not counted, because every busy connection has an
#: incomplete frame at times.
KEPT_BYTES_LEAST: Final = 16 * 1024
#: Memory blocks of at least this size are mapped one by one, bytes. The size is larger than a
#: single read of a connection and than the replies of one turn, since those blocks would be mapped
#: again and again.
LARGE_BLOCK_BYTES: Final = 4 * 1024 * 1024
#: How long a peer may leave its replies unread, ms; an idle connection is kept for the same time.
WRITE_STALL_MAX_MS: Final = 120_000
#: Bytes of a PROXY header of version 2: the addresses take 52 bytes, and the additions of proxies
#: take a few hundred.
PROXY_HEADER_SIZE_MAX: Final = 4096
#: How long a connection may take to send its first bytes, if they begin a PROXY header, seconds.
FIRST_BYTES_SECONDS: Final = 10.0
#: How long a TLS handshake may take, seconds. Source: Netty's SslHandler.
TLS_HANDSHAKE_SECONDS: Final = 10.0
#: Memory of a TLS handshake in progress, bytes: 56 KiB were measured, and 27 KiB after its end.
#: Until then this memory counts as kept for the peer.
TLS_HANDSHAKE_BYTES: Final = 56 * 1024
#: Pulls that may wait for messages at the same time (pullThreadPoolQueueCapacity @5.3.3).
HELD_PULLS_MAX: Final = 100_000
#: Held pulls that each connection may have beyond that limit. Without them, a well-behaved client
#: would repeat its pull in a tight loop. A consumer has one pull for each queue.
HELD_PULLS_FREE: Final = 16

#: The longest time that a pull, a pop or a notification waits for messages, even if it asks for
#: more, ms. Clients ask for 15 to 30 s, and repeat the request when the reply is empty.
HOLD_MS_MAX: Final = 120_000

#: The largest offset in a commit log that is believed of another program. No log gets there, 4 EiB,
#: and the sum of two such offsets is still an int64.
LOG_OFFSET_MAX: Final = 1 << 62

#: A server starts only if it may open at least this number of files. The store uses up to half of
#: them for its queues, 128 are for its other files and the reactor, and the remaining ones are for
#: a few connections.
OPEN_FILES_LEAST: Final = 512

# --- requests

#: Bytes of the header of a request, and of its body, unless the handler of its request code sets
#: another limit. Within this size, every list or map is decoded quickly enough that other
#: connections do not have to wait.
HEADER_SIZE_MAX: Final = 64 * 1024
BODY_SIZE_MAX: Final = 64 * 1024
#: The same limit for a header that carries an expression or the properties of a message, 32,767
#: bytes (Short.MAX_VALUE): JSON may take six bytes for one byte.
LONG_HEADER_SIZE_MAX: Final = 256 * 1024
#: Bytes of a list of topics or groups to create: about 10,000 of them. Reading it takes 50 ms.
TABLE_BODY_SIZE_MAX: Final = 2 * 1024 * 1024
#: Bytes of a list of queues to lock: all queues that one topic may have.
LOCK_BODY_SIZE_MAX: Final = 2 * 1024 * 1024
#: Bytes of one subscription: its expression, its tags and their hashes.
SUBSCRIPTION_BODY_SIZE_MAX: Final = 512 * 1024
#: Memory per byte of a decoded body while the request waits: a list of the shortest members takes
#: ten bytes, and the bodies that occur in practice take five.
DECODED_BYTES_PER_BYTE: Final = 10

# --- topics

#: The encoded size of all topic configurations, bytes. With this limit, a registration or the reply
#: to a tool fits into one frame. It allows 80,000 topics with short names, or 45,000 with names of
#: 95 characters.
TOPIC_ROWS_SIZE_MAX: Final = FRAME_SIZE_MAX - 512 * 1024
#: The part of this size that is reserved for retry and dead-letter topics, bytes: 10,000 topics
#: with short names. When ordinary topics have used up the remaining part, groups can still be
#: created and messages can still be sent back. Half of the reserved part is for groups that exist
#: already.
TOPIC_ROWS_KEPT: Final = TOPIC_ROWS_SIZE_MAX // 8
#: The largest number of read queues, and of write queues, of a topic. Each queue is a file. A reply
#: to a tool about a topic of this size is still several times smaller than a frame; the topics of
#: real clusters have hundreds of queues.
TOPIC_QUEUES_MAX: Final = 16_384

#: The number of deleted topics that are remembered until the broker stops, 20 MiB with the longest
#: names. Delayed messages are not delivered to these topics.
DELETED_TOPICS_MAX: Final = 65_536

# --- settings

#: Bytes of a request that changes settings: the reactor is blocked while it is parsed.
SETTINGS_SIZE_MAX: Final = 64 * 1024

#: Topics, and pairs of a topic and a group, with their own counters: a key takes at most 2 KiB.
STATISTICS_MAX: Final = 100_000

# --- groups

#: The encoded size of all group configurations in a reply to a tool, bytes: over 30,000 groups.
GROUP_ROWS_SIZE_MAX: Final = FRAME_SIZE_MAX - 512 * 1024
#: The part of this size that groups created on first use cannot take, bytes. It is reserved for the
#: groups that administrators create and change.
GROUP_ROWS_KEPT: Final = GROUP_ROWS_SIZE_MAX // 8

#: Memory for the offsets that clients commit, bytes, as counted by consumer_offset.py: 200,000
#: pairs of a topic and a group with names of usual length. A real cluster has thousands of pairs.
OFFSETS_BYTES_MAX: Final = 128 * 1024 * 1024

# --- the reactor

#: How long the requests of one read may run before other connections get their turn, seconds. The
#: sends of one read are a single piece of work and are not divided.
TURN_SECONDS: Final = 0.005
#: Bytes of replies after which a turn ends as well. A client that asks for more gets the remaining
#: replies once it has read these.
TURN_REPLY_BYTES_MAX: Final = 1024 * 1024

#: Work that blocks the reactor for longer than this is counted as a stall, seconds.
STALL_SECONDS: Final = 0.010
#: A stall that is longer than this is logged as a warning, seconds. Shorter stalls also happen on a
#: busy machine.
STALL_WARN_SECONDS: Final = 0.100

# --- name server

#: Bytes of a namespace or a key of the key-value configuration: four times the limit for a topic's
#: name.
KV_NAME_SIZE_MAX: Final = 1024
#: Bytes that each key or namespace counts in addition to its length, so that empty ones are limited
#: too.
KV_ENTRY_BYTES: Final = 32
#: Bytes of the values that are sent to a registering broker; the remaining bytes of the frame are
#: for the header.
KV_REPLY_SIZE_MAX: Final = FRAME_SIZE_MAX - 64 * 1024
#: Bytes of registrations that may wait for their turn, over all hosts.
CHANGES_BYTES_MAX: Final = 128 * 1024 * 1024
#: A registration of at most this size is always queued: a broker with hundreds of topics sends one.
CHANGES_BYTES_FREE: Final = 128 * 1024
#: The longest heartbeat timeout a broker may ask for, ms: a lost broker is removed after it.
BROKER_TIMEOUT_MS_MAX: Final = 3_600_000
#: The largest number of brokers that a name server keeps; no real cluster has that many.
NAMESRV_BROKERS_MAX: Final = 10_000
#: The largest number of brokers with one name: a master and its slaves. In Apache, such groups have
#: a few members; each route lists all of them.
BROKERS_OF_NAME_MAX: Final = 128
#: Memory of the route of one broker name for a topic, in addition to the names, bytes: objects and
#: table slots, measured with brokers that share no topic.
ROUTE_ROW_BYTES: Final = 400
#: The same memory for the mapping of a static topic, and for each queue in it.
ROUTE_MAPPING_BYTES: Final = 640
ROUTE_MAPPING_QUEUE_BYTES: Final = 112
#: How long the place and the bytes of a broker that has left stay reserved, ms, so that it can
#: restart.
PLACE_KEPT_MS_MAX: Final = 3_600_000
#: Bytes of a topic that is registered on its own (217): it names the queues of one broker.
SINGLE_TOPIC_SIZE_MAX: Final = 16 * 1024

# --- logs

#: The number of characters that are written of one field of a log event, since a peer may have sent
#: the field. Names of topics and groups have at most 255 characters, and a remark with a path fits
#: as well.
LOG_FIELD_CHARS_MAX: Final = 1024
#: The same limit for a whole line.
LOG_LINE_CHARS_MAX: Final = 8 * 1024
#: The number of lines that are written of one traceback.
LOG_TRACEBACK_LINES_MAX: Final = 200

# --- store

#: Bytes of a memory page; Apache counts the amount of data to flush in pages of this size.
PAGE_SIZE_BYTES: Final = 4096

#: Bytes of one entry of a consume queue. Source: ConsumeQueue.CQ_STORE_UNIT_SIZE.
QUEUE_ENTRY_SIZE_BYTES: Final = 20

#: The same size for a batch queue. Source: BatchConsumeQueue.CQ_STORE_UNIT_SIZE.
BATCH_QUEUE_ENTRY_SIZE_BYTES: Final = 46

#: The largest number of bytes that one read of a queue returns. Source: MAX_PULL_MSG_SIZE.
PULL_SIZE_BYTES_MAX: Final = 128 * 1024 * 1024

#: Bytes of the checkpoint file. Source: StoreCheckpoint maps one page.
CHECKPOINT_SIZE_BYTES: Final = PAGE_SIZE_BYTES

#: The largest number of consume-queue files that stay open. Each one needs a descriptor, and
#: opening a file again for each write costs ten times as much as the write. At most half of the
#: descriptors that the process may open are used.
OPEN_QUEUE_FILES_MAX: Final = 16_384

#: The number of commit-log files that stay mapped. Each mapping keeps a descriptor; old files are
#: mapped again when a slow consumer reads them.
OPEN_LOG_FILES_MAX: Final = 32

#: The entries of one queue in memory are written each second if they have at least this number of
#: bytes; fewer bytes wait for the thorough flush. Source: flushConsumeQueueLeastPages is two pages.
QUEUE_TAIL_LEAST_BYTES: Final = 2 * PAGE_SIZE_BYTES

#: Bytes of consume-queue entries in memory, over all queues, at which they are written before their
#: second is over, even if each queue has only a few: two seconds at 100,000 messages a second.
QUEUE_TAILS_FLUSH_BYTES: Final = 4 * 1024 * 1024

#: The average number of bytes of a queue's entries at which many queues are written: a write of
#: fewer bytes takes the same time.
QUEUE_TAIL_WORTH_BYTES: Final = 400

#: Bytes of consume-queue entries in memory, over all queues, at which they are written regardless
#: of the number of queues.
QUEUE_TAILS_FLUSH_BYTES_MAX: Final = 16 * 1024 * 1024

#: Queue files are synced before flushConsumeQueueThoroughInterval is over if this number of
#: commit-log bytes has queue entries that are not durable yet, because a start after a crash reads
#: the log from that point. If there are more files than the second constant, no such sync takes
#: place. The third constant is the least time between two such syncs, ms.
QUEUE_SYNC_LOG_BYTES: Final = 512 * 1024 * 1024
QUEUE_SYNC_FILES_MAX: Final = 64
QUEUE_SYNC_INTERVAL_MS: Final = 4_000

#: Bytes of consume-queue entries in memory, over all queues, at which the store refuses messages.
#: The number is reached only if the disk has no room for the entries: it is half a minute at
#: 100,000/s.
QUEUE_TAILS_TOTAL_BYTES_MAX: Final = 64 * 1024 * 1024

#: The number of queue tails, and of index pages, that one step of the flush writes. Writing a tail
#: takes about 5 us and writing a page 10 us, so a step stays well under the 10 ms for which the
#: reactor may be blocked.
FLUSH_STEP_TAILS_MAX: Final = 200
FLUSH_STEP_PAGES_MAX: Final = 200

#: The time after which a step of the flush ends early, ms. For the tail of a new queue, a directory
#: and a file are created, which takes 100 times as long as a write.
FLUSH_STEP_MS: Final = 4

#: Bytes of consume-queue entries in memory over all queues from which a step of the flush takes
#: longer. Sends wait in that case, and no send is refused because entries arrive faster than files
#: are created.
QUEUE_TAILS_URGENT_BYTES: Final = 32 * 1024 * 1024

#: The duration of such a step, ms, half of the time between two steps. The reactor is blocked for
#: that time.
FLUSH_URGENT_STEP_MS: Final = 25

#: Bytes of index items that are written in one step.
FLUSH_STEP_ITEM_BYTES_MAX: Final = 1024 * 1024

#: The time between two rounds that make the index durable, ms, and the number of item bytes that
#: start a round earlier. A round may write all pages of the 20 MB of slots; messages that it has
#: not written are indexed again after a crash, which takes about 3 us per message. At the full rate
#: there is a round every three seconds.
INDEX_FLUSH_INTERVAL_MS: Final = 10_000
INDEX_FLUSH_BYTES: Final = 10 * 1024 * 1024

#: Bytes of items that wait in memory for an index that is no longer flushed because a sync failed.
#: Three million keys can still be looked up; the keys of later messages can be looked up only after
#: the next start.
INDEX_LOST_BYTES_MAX: Final = 64 * 1024 * 1024

#: The time between two checks that the folders and the open commit-log files of the running store
#: are still in their place and have kept their length, ms. A check takes a few microseconds, and
#: messages that are acknowledged between a loss and the next check are lost.
STORE_LOOK_INTERVAL_MS: Final = 1_000

#: The time between two writes of the checkpoint, ms. Source: DefaultMessageStore.addScheduleTask.
CHECKPOINT_FLUSH_INTERVAL_MS: Final = 1_000

#: Bytes of the commit log that one step reads and dispatches when dispatch lags.
DISPATCH_STEP_BYTES_MAX: Final = 512 * 1024
#: The approximate number of records that one step of dispatch takes; 2 us each.
DISPATCH_STEP_RECORDS: Final = 512
#: Bytes of the commit log whose records wait in memory for replicas to confirm them. Later records
#: are read back from the log.
DISPATCH_WAITING_BYTES_MAX: Final = 64 * 1024 * 1024

#: Recovery starts this much earlier than the checkpoint, ms. Source:
#: StoreCheckpoint.getMinTimestamp.
CHECKPOINT_MARGIN_MS: Final = 3_000
#: If the wall clock goes back by at most this time, ms, the store waits for it. Time servers make
#: such corrections, and each longer step costs a write of the checkpoint.
CLOCK_STEP_MAX_MS: Final = 1_000

# --- clients

#: Characters of the expression of a subscription, in any language: 20,000 of the shortest tags.
#: Apache has no limit, but people write expressions and do not need longer ones.
EXPRESSION_LENGTH_MAX: Final = 64 * 1024
#: Characters of a client id: all clients make it of the host, the process and a few words.
CLIENT_ID_LENGTH_MAX: Final = 1024
#: The largest size of a heartbeat, bytes; reading one of this size takes about 20 ms. A group with
#: one subscription takes 300 bytes, and the longest expression with its tags and their hashes takes
#: 400,000.
HEARTBEAT_SIZE_MAX: Final = 1024 * 1024
#: Bytes that the broker keeps for the heartbeats of one connection, as counted by client_quotas.py:
#: 2,000 groups, or one group with 4,000 subscriptions. A process has a few groups, all on one
#: connection.
CONNECTION_CLIENT_BYTES_MAX: Final = 2 * 1024 * 1024
#: The same limit over all connections: 100,000 clients with one group and one subscription each.
CLIENTS_BYTES_TOTAL_MAX: Final = 192 * 1024 * 1024
#: Bytes that a connection may have even when the total is used up. This is enough for a producer
#: and a group with a few subscriptions, so that usual clients keep working while large ones exhaust
#: the total.
CONNECTION_CLIENT_BYTES_FREE: Final = 8 * 1024

# --- pops

#: Bytes of a batch of acknowledgements, and the number of check points in it. A pop reads one topic
#: and its retry topic, and creates one check point for each queue. Reading and storing a full batch
#: takes about 30 ms.
BATCH_ACK_SIZE_MAX: Final = 1024 * 1024
BATCH_ACK_POINTS_MAX: Final = 1024
#: Characters of a receipt, which consists of seven numbers and the name of a broker.
RECEIPT_LENGTH_MAX: Final = 1024
#: Characters of the id that identifies a repeated ordered pop: all clients use a UUID.
ATTEMPT_ID_LENGTH_MAX: Final = 256

assert CONNECTION_BYTES_IN_FLIGHT_MAX >= 2 * FRAME_SIZE_MAX
assert TOTAL_BYTES_IN_FLIGHT_MAX > CONNECTION_BYTES_IN_FLIGHT_MAX
assert LONG_HEADER_SIZE_MAX > 6 * (2**15 - 1) > HEADER_SIZE_MAX
assert TOTAL_BYTES_IN_FLIGHT_FREE > HELD_REQUEST_BYTES
assert CONNECTION_BYTES_UNSENT_MAX > FRAME_SIZE_MAX > CONNECTION_BYTES_UNSENT_FREE
assert PROXY_HEADER_SIZE_MAX < KEPT_BYTES_LEAST
assert KEPT_BYTES_TOTAL_MAX > CONNECTION_BYTES_UNSENT_MAX + FRAME_SIZE_MAX
assert LARGE_BLOCK_BYTES > 2 * TURN_REPLY_BYTES_MAX
assert LOG_FIELD_CHARS_MAX < LOG_LINE_CHARS_MAX
assert CONNECTION_CLIENT_BYTES_MAX > CONNECTION_CLIENT_BYTES_FREE
assert CLIENTS_BYTES_TOTAL_MAX > CONNECTION_CLIENT_BYTES_MAX > 2 * EXPRESSION_LENGTH_MAX
assert TURN_SECONDS < STALL_SECONDS < STALL_WARN_SECONDS
assert QUEUE_TAIL_LEAST_BYTES < QUEUE_TAILS_FLUSH_BYTES
assert QUEUE_TAILS_FLUSH_BYTES < QUEUE_TAILS_FLUSH_BYTES_MAX < QUEUE_TAILS_URGENT_BYTES
assert QUEUE_TAILS_URGENT_BYTES < QUEUE_TAILS_TOTAL_BYTES_MAX
assert CHECKPOINT_SIZE_BYTES % PAGE_SIZE_BYTES == 0
