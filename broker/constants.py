"""Limits, each with its unit, its reason and its source; their relations hold at the foot."""

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

#: The VIP port is this much below the main one. Source: BrokerController.initialize.
VIP_PORT_DISTANCE: Final = 2
#: Bytes of requests awaiting replies at which one connection stops reading. Twice the largest
#: frame, so that no single request can stop its own connection.
CONNECTION_BYTES_IN_FLIGHT_MAX: Final = 32 * 1024 * 1024
#: The same over all connections: the limit for the whole process.
TOTAL_BYTES_IN_FLIGHT_MAX: Final = 128 * 1024 * 1024
#: Bytes in flight that a connection may have even then, enough for a client of a few hundred
#: queues. Small clients keep working while large ones use up the total.
TOTAL_BYTES_IN_FLIGHT_FREE: Final = 512 * 1024
#: Bytes of requests that wait for their turn, over all connections. At this limit, connections with
#: waiting requests are no longer read. Flow control refuses sends long before; for other requests
#: this is the only limit.
WAITING_BYTES_TOTAL_MAX: Final = 128 * 1024 * 1024
#: Memory of a waiting request beside its own bytes: Python objects, measured and rounded up.
HELD_REQUEST_BYTES: Final = 2048
#: Bytes of replies that may wait for a peer before its requests are no longer read.
CONNECTION_BYTES_UNSENT_FREE: Final = 64 * 1024
#: Bytes a peer that does not read may have waiting for it before it is cut off. Its requests are
#: not read meanwhile: this is what one turn's replies and its woken pulls can add up to.
CONNECTION_BYTES_UNSENT_MAX: Final = 64 * 1024 * 1024
#: Bytes of incomplete frames and of unread replies over all connections. At this limit, the
#: connection that has kept the broker waiting longest is cut off.
KEPT_BYTES_TOTAL_MAX: Final = 256 * 1024 * 1024
#: A connection with less than this is not counted: every busy one has an incomplete frame at times.
KEPT_BYTES_LEAST: Final = 16 * 1024
#: Blocks of memory from this size on are mapped one by one, bytes: more than a connection reads at
#: once and than a turn's replies have, which would be mapped over and over.
LARGE_BLOCK_BYTES: Final = 4 * 1024 * 1024
#: How long a peer may leave its replies unread, ms; as long as an idle connection lives.
WRITE_STALL_MAX_MS: Final = 120_000
#: Bytes of a PROXY header of version 2: addresses take 52, and what proxies add a few hundred.
PROXY_HEADER_SIZE_MAX: Final = 4096
#: How long a connection may take over its first bytes, where they begin a PROXY header, seconds.
FIRST_BYTES_SECONDS: Final = 10.0
#: How long a TLS handshake may take, seconds. Source: Netty's SslHandler.
TLS_HANDSHAKE_SECONDS: Final = 10.0
#: Memory of a handshake under way, bytes: measured 56 KiB, and 27 KiB when done. It counts as kept
#: for its peer until then.
TLS_HANDSHAKE_BYTES: Final = 56 * 1024
#: Pulls that may wait for messages at a time (pullThreadPoolQueueCapacity @5.3.3).
HELD_PULLS_MAX: Final = 100_000
#: Held pulls that each connection may have beyond that limit. Without them, a well-behaved client
#: would repeat its pull at once, again and again. A consumer has one pull for each queue.
HELD_PULLS_FREE: Final = 16

#: How long a pull, a pop or a notification may wait for messages, whatever time it asks for, ms.
#: Clients ask for 15 to 30 s, and ask again when the answer is empty.
HOLD_MS_MAX: Final = 120_000

#: The least limit of open files with which a server starts. The store uses up to half of them for
#: its queues, 128 are for its other files and the reactor, the rest for a few connections.
OPEN_FILES_LEAST: Final = 512

# --- requests

#: Bytes of a request's header, and of its body, unless the handler of its code sets another limit.
#: Within this size, no list or map takes so long to decode that other connections wait.
HEADER_SIZE_MAX: Final = 64 * 1024
BODY_SIZE_MAX: Final = 64 * 1024
#: The same of a header with the properties of a message, 32,767 bytes (Short.MAX_VALUE), or with
#: an expression: JSON may take six bytes for one.
LONG_HEADER_SIZE_MAX: Final = 256 * 1024
#: Bytes of a list of topics or groups that are to be created: some 10,000. Reading it takes 50 ms.
TABLE_BODY_SIZE_MAX: Final = 2 * 1024 * 1024
#: Bytes of a list of queues that are to be locked: all that one topic may have.
LOCK_BODY_SIZE_MAX: Final = 2 * 1024 * 1024
#: Bytes of one subscription: its expression, its tags and their hashes.
SUBSCRIPTION_BODY_SIZE_MAX: Final = 512 * 1024
#: Memory per byte of a decoded body, while the request waits: ten bytes for lists of the shortest
#: members, five for bodies in use.
DECODED_BYTES_PER_BYTE: Final = 10

# --- topics

#: Encoded size of all topic configurations, bytes, so that a registration or a tool's reply fits
#: into one frame. 80,000 topics with short names, 45,000 with names of 95 characters.
TOPIC_ROWS_SIZE_MAX: Final = FRAME_SIZE_MAX - 512 * 1024
#: The part of it reserved for retry and dead-letter topics, bytes: 10,000 with short names. When
#: ordinary topics have used up the rest, groups can still be created and messages sent back. Half
#: of this part is for groups that exist already.
TOPIC_ROWS_KEPT: Final = TOPIC_ROWS_SIZE_MAX // 8
#: Read queues, and write queues, of a topic at most. Each queue is a file. A tool's reply about a
#: topic of this size still fits into a frame several times; clusters in use have hundreds.
TOPIC_QUEUES_MAX: Final = 16_384

#: Deleted topics that are remembered until the broker stops, 20 MiB with the longest names. Delayed
#: messages are not delivered to them.
DELETED_TOPICS_MAX: Final = 65_536

# --- settings

#: Bytes of a tool's change of settings: the reactor is blocked while it is parsed.
SETTINGS_SIZE_MAX: Final = 64 * 1024

#: Topics, and pairs of a topic and a group, that are counted apart: a key takes 2 KiB at most.
STATISTICS_MAX: Final = 100_000

# --- groups

#: Encoded size of all group configurations in a tool's reply, bytes. Over 30,000 groups.
GROUP_ROWS_SIZE_MAX: Final = FRAME_SIZE_MAX - 512 * 1024
#: The part of it that groups created on first use cannot have, bytes: it is reserved for groups
#: that administrators create and change.
GROUP_ROWS_KEPT: Final = GROUP_ROWS_SIZE_MAX // 8

#: Memory for the offsets that clients commit, bytes, as consumer_offset.py counts: 200,000 pairs of
#: a topic and a group with usual names. A cluster in use has thousands.
OFFSETS_BYTES_MAX: Final = 128 * 1024 * 1024

# --- the reactor

#: How long the requests of one read may run before other connections have their turn, seconds.
#: Sends are one piece of work and not cut.
TURN_SECONDS: Final = 0.005
#: Bytes of replies that end a turn too: a client that asks for more gets the rest once it has read
#: these.
TURN_REPLY_BYTES_MAX: Final = 1024 * 1024

#: Work that blocks the reactor longer than this is counted as a stall, seconds.
STALL_SECONDS: Final = 0.010
#: A stall longer than this is logged as a warning, seconds: shorter ones also happen on a busy
#: machine.
STALL_WARN_SECONDS: Final = 0.100

# --- name server

#: Bytes of a namespace or a key of the key-value configuration: four times what a topic's name has.
KV_NAME_SIZE_MAX: Final = 1024
#: Bytes that a key or a namespace counts in addition to its length, so that empty ones are limited
#: too.
KV_ENTRY_BYTES: Final = 32
#: Bytes of values that a registering broker is sent; the rest of the frame is for the header.
KV_REPLY_SIZE_MAX: Final = FRAME_SIZE_MAX - 64 * 1024
#: Bytes of registrations that may wait for their turn, over all hosts.
CHANGES_BYTES_MAX: Final = 128 * 1024 * 1024
#: A registration of at most this size is always queued: one of a broker with hundreds of topics.
CHANGES_BYTES_FREE: Final = 128 * 1024
#: The longest heartbeat timeout a broker may ask for, ms: a lost broker is removed after it.
BROKER_TIMEOUT_MS_MAX: Final = 3_600_000
#: Brokers that a name server keeps at most: no real cluster has so many.
NAMESRV_BROKERS_MAX: Final = 10_000
#: Brokers of one name: a master and its slaves. Apache's groups have a few; each route lists all.
BROKERS_OF_NAME_MAX: Final = 128
#: Memory of one broker name's route for a topic beside the names, bytes: objects and table slots,
#: measured with brokers that share no topic.
ROUTE_ROW_BYTES: Final = 400
#: The same of a static topic's mapping, and of each queue in it.
ROUTE_MAPPING_BYTES: Final = 640
ROUTE_MAPPING_QUEUE_BYTES: Final = 112
#: How long the place and the bytes of a broker that left are reserved, ms, so that it can restart.
PLACE_KEPT_MS_MAX: Final = 3_600_000
#: Bytes of a topic that is registered by itself (217): it names the queues of one broker.
SINGLE_TOPIC_SIZE_MAX: Final = 16 * 1024

# --- logs

#: Characters of one field of a log event that are written: a peer may have sent it. Names of
#: topics and groups have at most 255, a remark with a path in it has room.
LOG_FIELD_CHARS_MAX: Final = 1024
#: The same of a line, whatever it is made of.
LOG_LINE_CHARS_MAX: Final = 8 * 1024
#: Lines of one traceback that are written.
LOG_TRACEBACK_LINES_MAX: Final = 200

# --- store

#: Bytes of a memory page; Apache counts what a flush is worth in pages of this size.
PAGE_SIZE_BYTES: Final = 4096

#: Bytes of one entry of a consume queue. Source: ConsumeQueue.CQ_STORE_UNIT_SIZE.
QUEUE_ENTRY_SIZE_BYTES: Final = 20

#: The same of a batch queue. Source: BatchConsumeQueue.CQ_STORE_UNIT_SIZE.
BATCH_QUEUE_ENTRY_SIZE_BYTES: Final = 46

#: Most bytes one read of a queue returns. Source: MAX_PULL_MSG_SIZE.
PULL_SIZE_BYTES_MAX: Final = 128 * 1024 * 1024

#: Bytes of the checkpoint file. Source: StoreCheckpoint maps one page.
CHECKPOINT_SIZE_BYTES: Final = PAGE_SIZE_BYTES

#: Consume-queue files that stay open at most: each needs one descriptor, and opening one again for
#: each write costs ten times the write. No more than half of what the process may open are used.
OPEN_QUEUE_FILES_MAX: Final = 16_384

#: Commit-log files that stay mapped. Each map keeps a descriptor; old files are mapped again when
#: a slow consumer comes to them.
OPEN_LOG_FILES_MAX: Final = 32

#: Bytes of one queue's entries in memory that are worth a write each second; fewer wait for the
#: thorough flush. Source: flushConsumeQueueLeastPages is two pages.
QUEUE_TAIL_LEAST_BYTES: Final = 2 * PAGE_SIZE_BYTES

#: Bytes of consume-queue entries in memory over all queues at which they are written before
#: their second is over, however few each queue has: two seconds at 100,000 messages a second.
QUEUE_TAILS_FLUSH_BYTES: Final = 4 * 1024 * 1024

#: Bytes of one queue's entries, on an average, at which many queues are written: a write of fewer
#: takes as long.
QUEUE_TAIL_WORTH_BYTES: Final = 400

#: Bytes of consume-queue entries in memory over all queues at which they are written, however many
#: queues have them.
QUEUE_TAILS_FLUSH_BYTES_MAX: Final = 16 * 1024 * 1024

#: Bytes of commit log whose entries are not durable, at which queue files are synced before
#: flushConsumeQueueThoroughInterval is over: a start after a crash reads the log from there. The
#: least time between two of them, ms; not done at all when there are many files.
QUEUE_SYNC_LOG_BYTES: Final = 512 * 1024 * 1024
QUEUE_SYNC_FILES_MAX: Final = 64
QUEUE_SYNC_INTERVAL_MS: Final = 4_000

#: Bytes of consume-queue entries in memory over all queues, at which the store refuses messages.
#: Only a disk that has no room for them lets it come to this: it is half a minute at 100,000/s.
QUEUE_TAILS_TOTAL_BYTES_MAX: Final = 64 * 1024 * 1024

#: Queue tails written, and index pages written, in one step of the flush: a tail's write is about
#: 5 us, a page's 10, so that a step stays well under the 10 ms a reactor may be held.
FLUSH_STEP_TAILS_MAX: Final = 200
FLUSH_STEP_PAGES_MAX: Final = 200

#: Ms after which a step of the flush ends early: the tail of a new queue takes a directory and a
#: file to be made, 100 times as long as a write.
FLUSH_STEP_MS: Final = 4

#: Bytes of consume-queue entries in memory over all queues from which a step of the flush takes
#: longer. Sends wait then, and none is refused because entries come faster than files are made.
QUEUE_TAILS_URGENT_BYTES: Final = 32 * 1024 * 1024

#: Ms of such a step, half of the time between two; the reactor is held for so long.
FLUSH_URGENT_STEP_MS: Final = 25

#: Bytes of index items written in one step.
FLUSH_STEP_ITEM_BYTES_MAX: Final = 1024 * 1024

#: Ms between two rounds that make the index durable, and how many bytes of items do not wait for
#: that long. A round may write all pages of the 20 MB of slots; what it has not written has to be
#: indexed again after a crash, some 3 us a message. At full rate it is a round every three seconds.
INDEX_FLUSH_INTERVAL_MS: Final = 10_000
INDEX_FLUSH_BYTES: Final = 10 * 1024 * 1024

#: Bytes of items that wait in memory for an index whose sync failed, which is flushed no more:
#: three million keys can still be looked up, those of later messages only after the next start.
INDEX_LOST_BYTES_MAX: Final = 64 * 1024 * 1024

#: Ms between two looks whether the running store's folders and open commit-log files are still
#: where they were and as long: a few microseconds each, and what is acknowledged meanwhile is lost.
STORE_LOOK_INTERVAL_MS: Final = 1_000

#: Ms between two writes of the checkpoint. Source: DefaultMessageStore.addScheduleTask.
CHECKPOINT_FLUSH_INTERVAL_MS: Final = 1_000

#: Bytes of commit log read and dispatched in one step when dispatch is behind.
DISPATCH_STEP_BYTES_MAX: Final = 512 * 1024
#: Records that one step of dispatch takes, about; 2 us each.
DISPATCH_STEP_RECORDS: Final = 512

#: Ms by which recovery starts before the checkpoint. Source: StoreCheckpoint.getMinTimestamp.
CHECKPOINT_MARGIN_MS: Final = 3_000
#: A wall clock that goes back by no more, ms, is waited for: time servers do that, and each longer
#: step costs a write of the checkpoint.
CLOCK_STEP_MAX_MS: Final = 1_000

# --- clients

#: Characters of a subscription's expression, in any language: 20,000 of the shortest tags. Apache
#: has no bound, nor has anything a use for more: consumers write them by hand.
EXPRESSION_LENGTH_MAX: Final = 64 * 1024
#: Characters of a client id: host, process and a few words in all clients.
CLIENT_ID_LENGTH_MAX: Final = 1024
#: Bytes of a heartbeat at most; reading one of this size takes some 20 ms. A group with a
#: subscription is 300, the longest expression with its tags and their hashes 400,000.
HEARTBEAT_SIZE_MAX: Final = 1024 * 1024
#: Bytes that one connection's heartbeats may have the broker keep, as client_quotas.py counts:
#: 2,000 groups, or one with 4,000 subscriptions. A process has a few groups, all on one connection.
CONNECTION_CLIENT_BYTES_MAX: Final = 2 * 1024 * 1024
#: The same over all connections: 100,000 clients of one group and one subscription each.
CLIENTS_BYTES_TOTAL_MAX: Final = 192 * 1024 * 1024
#: Bytes that a connection may have even then, enough for a producer and a group with a few
#: subscriptions. Usual clients keep working while large ones use up the total.
CONNECTION_CLIENT_BYTES_FREE: Final = 8 * 1024

# --- pops

#: Bytes of a batch of acknowledgements, and check points in it: a pop takes of one topic and its
#: retries, and makes one a queue. Reading and storing a full batch takes some 30 ms.
BATCH_ACK_SIZE_MAX: Final = 1024 * 1024
BATCH_ACK_POINTS_MAX: Final = 1024
#: Characters of a receipt, which are seven numbers and a broker's name.
RECEIPT_LENGTH_MAX: Final = 1024
#: Characters of the id by which a pop in order that is sent again is known: a UUID in all clients.
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
