"""All settings of the kernel, in Apache's groups and with Apache's defaults.

Only settings that are read have a row here, because a setting without an effect would be a broken
promise; other settings of a file are kept and named in a warning. Code that reads another setting
adds a row here; a plugin uses ``register_settings``.

Source: BrokerConfig, BrokerIdentity, NettyServerConfig, NettyClientConfig, MessageStoreConfig,
NamesrvConfig, TlsSystemConfig @5.3.3.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from twistmq.broker.config.settings import LONG_MAX, OWN_FILE, Setting
from twistmq.broker.constants import TOPIC_QUEUES_MAX
from twistmq.protocol.flags import BROKER_ID_MAX

__all__ = ["NAMESRV_OPEN", "broker_rows", "local_address", "namesrv_rows", "up_rows"]

_BROKER: Final = "BrokerConfig"
_STORE: Final = "MessageStoreConfig"
_SERVER: Final = "NettyServerConfig"
_CLIENT: Final = "NettyClientConfig"
_NAMESRV: Final = "NamesrvConfig"
_TLS: Final = "TlsSystemConfig"


def local_address() -> str:
    """Return the IPv4 source address of this host's packets; 127.0.0.1 without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; the address is reserved for examples.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


def _name_servers() -> str:
    return os.environ.get("NAMESRV_ADDR", "")


#: The identity of the broker, and the permissions of its clients.
BROKER_CONFIG: Final = (
    Setting("brokerName", "text", socket.gethostname,
            "The broker's name; a master and its slaves share one.",
            source=_BROKER, important=True, default_text="the host's name", at_start=True,
            of_each="name"),
    Setting("brokerClusterName", "text", "DefaultCluster", "The cluster the broker joins.",
            source=_BROKER, important=True, at_start=True),
    Setting("brokerId", "int", 0, "0 is the id of a master; each slave has its own id.",
            most=BROKER_ID_MAX, source=_BROKER, important=True, at_start=True),
    Setting("namesrvAddr", "text", _name_servers,
            "The name servers, host:port separated by semicolons.",
            source=_BROKER, important=True, default_text="$NAMESRV_ADDR"),
    Setting("fetchNameSrvAddrByDnsLookup", "flag", False,
            "Whether the broker registers at every address that DNS has for the names in "
            "namesrvAddr.", source=_BROKER),
    Setting("updateNameServerAddrPeriod", "int", 120_000,
            "How often the names are looked up again.", unit="ms", least=1000, source=_BROKER),
    Setting("fetchNamesrvAddrByAddressServer", "flag", False,
            "Whether an address server is asked for the name servers, while namesrvAddr names "
            "none.", source=_BROKER, important=True),
    Setting("fetchNamesrvAddrInterval", "int", 10_000, "How often the address server is asked.",
            unit="ms", least=1000, source=_BROKER),
    Setting("rmqAddressServerDomain", "text", "jmenv.tbsite.net",
            "The address server, HOST or HOST:PORT; its port is 8080 when none is given.",
            source=_BROKER),
    Setting("rmqAddressServerSubGroup", "text", "nsaddr",
            "The last part of the URL: the answer to GET http://HOST:PORT/rocketmq/THIS is one "
            "line, the name servers as in namesrvAddr.", source=_BROKER),
    Setting("brokerIP1", "text", local_address,
            "The address, or the host name, at which clients connect to the broker.",
            source=_BROKER, important=True, default_text="this host's address", at_start=True),
    Setting("brokerIP2", "text", local_address,
            "The address for slaves, which is registered with the name servers.",
            source=_BROKER, default_text="bindAddress, or this host's address where that is any",
            at_start=True),
    Setting("aclEnable", "flag", False,
            "Whether each request must pass the access validators of plugins; read at start.",
            source=_BROKER, important=True, at_start=True),
    Setting("authenticationEnabled", "flag", False,
            "Whether each request must be signed by a user of ACL 2.0, which replaces aclEnable.",
            source="AuthConfig", important=True, at_start=True, is_fixed=True),
    Setting("innerClientAuthenticationCredentials", "text", "",
            'The user who signs the requests of brokers and proxies to brokers, as '
            '{"accessKey":"...","secretKey":"..."}; a master makes it a super user.',
            source="AuthConfig", at_start=True, is_fixed=True, is_secret=True),
    Setting("brokerPermission", "int", 6,
            "The permission of clients: 4 read, 2 write, 6 both; topics are registered with it.",
            most=7, source=_BROKER),
    Setting("defaultTopicQueueNums", "int", 8, "The number of queues of the template topic TBW102.",
            least=1, most=TOPIC_QUEUES_MAX, unit="queues", source=_BROKER, at_start=True),
    Setting("autoCreateTopicEnable", "flag", True,
            "Whether sending to an unknown topic creates it.", source=_BROKER, important=True),
    Setting("clusterTopicEnable", "flag", True,
            "Whether a topic with the cluster's name exists.", source=_BROKER, at_start=True),
    Setting("brokerTopicEnable", "flag", True,
            "Whether a topic with the broker's name exists.", source=_BROKER, at_start=True),
    Setting("autoCreateSubscriptionGroup", "flag", True,
            "Whether consuming with an unknown group creates it.",
            source=_BROKER, important=True),
    Setting("traceTopicEnable", "flag", False, "Whether the trace topic is created at start.",
            source=_BROKER, important=True, at_start=True),
    Setting("msgTraceTopicName", "text", "RMQ_SYS_TRACE_TOPIC", "The trace topic.",
            source=_BROKER, important=True, at_start=True),
    Setting("traceOn", "flag", True, "Whether the broker asks clients to trace their messages.",
            source=_BROKER),
    Setting("regionId", "text", "DefaultRegion", "The region with which messages are marked.",
            source=_BROKER, at_start=True),
    Setting("rejectTransactionMessage", "flag", False, "Whether half messages are refused.",
            source=_BROKER, important=True),
    Setting("enablePropertyFilter", "flag", False,
            "Whether consumers may filter by an expression over properties.", source=_BROKER,
            at_start=True),
    Setting("enableLmqStats", "flag", False,
            "Whether each light topic and group has its own statistics; if not, all are counted as "
            "%LMQ%.",
            source=_BROKER),
    Setting("longPollingEnable", "flag", True,
            "Whether a pull that finds nothing waits as long as the client asks.", source=_BROKER),
    Setting("shortPollingTimeMills", "int", 1000,
            "How long a pull that finds nothing waits when longPollingEnable is false.",
            unit="ms", source=_BROKER),
    Setting("litePullMessageEnable", "flag", True, "Whether LITE_PULL_MESSAGE is served.",
            source=_BROKER),
    Setting("slaveReadEnable", "flag", False,
            "Whether the broker directs consumers that lag to a slave.",
            source=_BROKER),
    Setting("flushConsumerOffsetInterval", "int", 5000, "How often consumer offsets are saved.",
            unit="ms", least=1, source=_BROKER),
    Setting("forceRegister", "flag", True,
            "Whether the broker registers each period even if no topic changed.",
            source=_BROKER),
    Setting("registerNameServerPeriod", "int", 30_000,
            "How often the broker registers; kept from 10,000 to 60,000.",
            unit="ms", source=_BROKER),
    Setting("registerBrokerTimeoutMills", "int", 24_000,
            "How long a name server may take to answer a registration.",
            unit="ms", least=1, source=_BROKER),
    Setting("compressedRegister", "flag", False, "Whether registrations are compressed.",
            source=_BROKER),
    Setting("channelExpiredTimeout", "int", 120_000,
            "How long a client may be silent before it is forgotten.",
            unit="ms", least=1, most=LONG_MAX, source=_BROKER),
    Setting("isolateLogEnable", "flag", False,
            "Whether the log files are in a subfolder NAME_ID, named after the broker: for several "
            "brokers with one log folder.", source=_BROKER,
            at_start=True),
    Setting("brokerConfigPath", "path", "~/store/config/broker.properties",
            "Where changed settings are saved when no -c file was given.",
            source=_BROKER, default_text="~/store/config/broker.properties; under `up` "
                                         "DATA/broker.conf", at_start=True),
    Setting("configBlackList", "text", "configBlackList;brokerConfigPath",
            "Settings that no tool may change, separated by semicolons.", source=_BROKER),
    Setting(OWN_FILE, "path", "",
            "A file that is read after the file of -c, if it exists, and in which changed settings "
            "are saved. Each broker of --brokers has its own, config/broker.conf in its store.",
            default_text="none", at_start=True, is_fixed=True, of_each="own_file"),
)

#: Where and how messages are stored.
MESSAGE_STORE_CONFIG: Final = (
    Setting("storePathRootDir", "path", "~/store", "The folder of the store.",
            source=_STORE, important=True, at_start=True, of_each="folder"),
    Setting("storePathCommitLog", "path", "", "The folder of the commit log; one, no comma.",
            source=_STORE, important=True, default_text="<storePathRootDir>/commitlog",
            at_start=True, of_each="folder"),
    Setting("mappedFileSizeCommitLog", "int", 1024**3, "The size of a commit-log file.",
            unit="bytes", least=1024, source=_STORE, at_start=True),
    Setting("mappedFileSizeConsumeQueue", "int", 300_000 * 20,
            "The size of a consume-queue file; rounded up to whole entries of 20 bytes.",
            unit="bytes", least=20, source=_STORE, at_start=True),
    Setting("mapperFileSizeBatchConsumeQueue", "int", 300_000 * 46,
            "The size of a batch queue's file; rounded up to whole entries of 46 bytes.",
            unit="bytes", least=46, source=_STORE, at_start=True),
    Setting("enableConsumeQueueExt", "flag", False,
            "Whether each new entry of a consume queue gets a unit in consumequeue_ext: its "
            "message's store time, and which filters want it.", source=_STORE, at_start=True),
    Setting("mappedFileSizeConsumeQueueExt", "int", 48 * 1024**2,
            "The size of a file of consumequeue_ext.", unit="bytes", least=64, source=_STORE,
            at_start=True),
    # Apache's default for the filters: 32 consumers, a fifth of false positives.
    Setting("bitMapLengthConsumeQueueExt", "int", 112,
            "The expected length of a unit's filter bitmap. It determines how much of a file is "
            "read at once, and is not a limit.", unit="bits", least=1, source=_STORE,
            at_start=True),
    Setting("enableLmq", "flag", False,
            "Whether topics and groups whose names begin with %LMQ% exist without being created.",
            source=_STORE, at_start=True),
    Setting("enableMultiDispatch", "flag", False,
            "Whether messages enter the light queues they name; needs enableLmq as well.",
            source=_STORE, at_start=True),
    Setting("maxLmqConsumeQueueNum", "int", 20_000,
            "The largest number of light queues; messages that need more are refused.",
            unit="queues", least=1, source=_STORE, at_start=True),
    Setting("warmMapedFileEnable", "flag", False,
            "Whether the next commit-log file is created in advance and filled with zeros, so that "
            "its pages are in memory and its disk space is allocated before messages need it.",
            source=_STORE,
            at_start=True),
    Setting("flushLeastPagesWhenWarmMapedFile", "int", 1024 // 4 * 16,
            "How much of the file is written in one step; under SYNC_FLUSH each step ends with a "
            "sync.",
            unit="4 KiB pages", least=1, source=_STORE, at_start=True),
    Setting("flushDiskType", "text", "ASYNC_FLUSH",
            "Whether a send is answered before or after its message is on disk.",
            choices=("ASYNC_FLUSH", "SYNC_FLUSH"), source=_STORE, important=True, at_start=True),
    Setting("syncFlushTimeout", "int", 5000,
            "How long a send waits for the disk under SYNC_FLUSH.",
            unit="ms", least=1, source=_STORE),
    Setting("flushIntervalCommitLog", "int", 500,
            "How often the commit log is written to disk under ASYNC_FLUSH.",
            unit="ms", least=1, source=_STORE, important=True),
    Setting("flushCommitLogLeastPages", "int", 4,
            "The least number of new pages that is flushed; fewer wait for "
            "flushCommitLogThoroughInterval.",
            unit="4 KiB pages", least=1, source=_STORE),
    Setting("flushCommitLogThoroughInterval", "int", 10_000,
            "The longest time from a write to its flush.",
            unit="ms", least=1, source=_STORE),
    Setting("flushIntervalConsumeQueue", "int", 1000,
            "How often consume queues are written to disk.", unit="ms", least=1, source=_STORE),
    Setting("flushConsumeQueueThoroughInterval", "int", 60_000,
            "The longest time from a queue entry to its flush.",
            unit="ms", least=1, source=_STORE),
    Setting("maxMessageSize", "int", 4 * 1024**2, "The longest message body that is accepted.",
            unit="bytes", least=1, source=_STORE),
    Setting("maxTransferBytesOnMessageInMemory", "int", 256 * 1024,
            "The limit of a pull's reply for recent messages, which are in memory.",
            unit="bytes", least=1, source=_STORE, important=True),
    Setting("maxTransferCountOnMessageInMemory", "int", 32,
            "The limit of a pull's reply for recent messages, which are in memory.",
            unit="messages", least=1, source=_STORE, important=True),
    Setting("maxTransferBytesOnMessageInDisk", "int", 64 * 1024,
            "The limit of a pull's reply for old messages, which are on disk.",
            unit="bytes", least=1, source=_STORE, important=True),
    Setting("maxTransferCountOnMessageInDisk", "int", 8,
            "The limit of a pull's reply for old messages, which are on disk.",
            unit="messages", least=1, source=_STORE, important=True),
    Setting("accessMessageInMemoryMaxRatio", "int", 40,
            "The share of the host's memory that is assumed to hold recent messages.",
            unit="percent", least=1, most=100, source=_STORE, important=True),
    Setting("maxFilterMessageSize", "int", 16_000,
            "The limit of queue entries that a pull with a filter looks at, as their size.",
            unit="bytes", least=1, source=_STORE),
    Setting("maxMsgsNumBatch", "int", 64,
            "The largest number of messages that a query by key examines.",
            unit="messages", least=1, source=_STORE),
    Setting("checkCRCOnRecover", "flag", True,
            "Whether a start after a crash checks each message's checksum.", source=_STORE,
            at_start=True),
    Setting("messageIndexSafe", "flag", False,
            "Whether such a start rebuilds index files that are newer than the checkpoint.",
            source=_STORE, important=True, at_start=True),
    Setting("messageIndexEnable", "flag", True, "Whether messages are indexed by key.",
            source=_STORE, important=True, at_start=True),
    Setting("maxHashSlotNum", "int", 5_000_000, "The number of hash slots of an index file.",
            unit="slots", least=1, source=_STORE, at_start=True),
    Setting("maxIndexNum", "int", 20_000_000, "The number of items of an index file.",
            unit="items", least=2, source=_STORE, at_start=True),
    Setting("defaultQueryMaxNum", "int", 32,
            "The largest number of messages that a query by key returns.",
            unit="messages", least=1, source=_STORE),
    Setting("deleteWhen", "text", "04",
            "The hours of the day, 0 to 23, separated by semicolons, at which commit-log files "
            "older than fileReservedTime are removed.", source=_STORE, important=True),
    Setting("fileReservedTime", "int", 72,
            "How long a commit-log file is kept after the last write to it.",
            unit="hours", source=_STORE, important=True),
    Setting("diskMaxUsedSpaceRatio", "int", 75,
            "On a disk fuller than this, files older than fileReservedTime are removed at any "
            "hour; kept from 10 to 95.",
            unit="percent", least=1, source=_STORE),
    Setting("diskSpaceCleanForciblyRatio", "int", 85,
            "On a disk fuller than this, the oldest files are removed regardless of their age; "
            "kept from 30 to 85.", unit="percent", least=1, source=_STORE),
    Setting("diskSpaceWarningLevelRatio", "int", 90,
            "On a disk fuller than this messages are refused, until it is below "
            "diskSpaceCleanForciblyRatio; kept from 35 to 90.",
            unit="percent", least=1, source=_STORE),
    Setting("cleanFileForciblyEnable", "flag", True,
            "Whether diskSpaceCleanForciblyRatio has an effect.", source=_STORE),
    Setting("deleteFileBatchMax", "int", 10,
            "The largest number of commit-log files that one round removes.",
            unit="files", least=1, source=_STORE, important=True),
    Setting("cleanResourceInterval", "int", 10_000,
            "The time between two rounds that remove files.", unit="ms", least=1, source=_STORE),
    Setting("deleteCommitLogFilesInterval", "int", 100,
            "The pause after a commit-log file was removed.", unit="ms", source=_STORE),
    Setting("deleteConsumeQueueFilesInterval", "int", 100,
            "The pause after files of a consume queue were removed.", unit="ms", source=_STORE),
    Setting("redeleteHangedFileInterval", "int", 120_000,
            "The time after which a commit-log file that could not be removed is tried again.",
            unit="ms", source=_STORE),
    Setting("offsetCheckInSlave", "flag", False,
            "Whether a slave moves a consumer whose offset is outside of a queue, as a master "
            "does. If not, the consumer is asked to retry, because the slave may lag.",
            source=_STORE),
    Setting("haListenPort", "int", 0,
            "The port for slaves, which is registered with the name servers; a plugin listens on "
            "it.",
            most=65_535, source=_STORE, default_text="listenPort + 1", at_start=True,
            of_each="port"),
    Setting("brokerRole", "text", "ASYNC_MASTER",
            "The broker's replication role; a role other than ASYNC_MASTER needs a plugin that "
            "provides it.",
            choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"), source=_STORE, important=True,
            at_start=True),
)

#: The listening side of both servers.
NETTY_SERVER_CONFIG: Final = (
    Setting("bindAddress", "text", "0.0.0.0", "The address to listen on.", source=_SERVER,
            at_start=True),
    Setting("serverChannelMaxIdleTimeSeconds", "int", 120,
            "A connection without traffic for this time is closed.",
            unit="s", least=1, source=_SERVER),
    Setting("serverSocketBacklog", "int", 1024,
            "The number of connections that may wait to be accepted.",
            unit="connections", least=1, source=_SERVER, at_start=True),
)

#: The client side: connections from the broker to its name servers.
NETTY_CLIENT_CONFIG: Final = (
    Setting("connectTimeoutMillis", "int", 3000, "How long connecting may take.",
            unit="ms", least=1, source=_CLIENT, at_start=True),
)

#: The name server.
NAMESRV_CONFIG: Final = (
    Setting("kvConfigPath", "path", "~/namesrv/kvConfig.json",
            "The file of the key-value configuration.", source=_NAMESRV, is_fixed=True),
    Setting("configStorePath", "path", "~/namesrv/namesrv.properties",
            "Where settings changed by a tool are saved; the -c file when one was given.",
            source=_NAMESRV, is_fixed=True),
    Setting("scanNotActiveBrokerInterval", "int", 5000,
            "How often the name server looks for brokers that stopped sending heartbeats.",
            unit="ms", least=1, most=LONG_MAX, source=_NAMESRV),
    Setting("orderMessageEnable", "flag", False,
            "Whether routes carry the configuration of ordered topics.", source=_NAMESRV),
    Setting("returnOrderTopicConfigToBroker", "flag", True,
            "Whether a registering broker gets the configuration of ordered topics.",
            source=_NAMESRV),
    Setting("supportActingMaster", "flag", False,
            "Whether a route names a slave in place of a master that is gone.", source=_NAMESRV),
    Setting("notifyMinBrokerIdChanged", "flag", False,
            "Whether brokers are notified when the lowest broker id of their group changes.",
            source=_NAMESRV),
    Setting("enableAllTopicList", "flag", True, "Whether the list of all topics is served.",
            source=_NAMESRV),
    Setting("enableTopicList", "flag", True, "Whether the other topic lists are served.",
            source=_NAMESRV),
    Setting("deleteTopicWithBrokerRegistration", "flag", False,
            "Whether a topic missing from a registration is removed.", source=_NAMESRV),
    Setting("needWaitForService", "flag", False,
            "Whether routes are refused for waitSecondsForService after the start.",
            source=_NAMESRV),
    Setting("waitSecondsForService", "int", 45, "See needWaitForService.",
            unit="s", source=_NAMESRV),
    Setting("configBlackList", "text", "configBlackList;configStorePath;kvConfigPath",
            "Settings that no tool may change, separated by semicolons.", source=_NAMESRV),
    Setting("kv.value_size_max", "int", 64 * 1024,
            "The longest value of the key-value configuration; one that is longer is refused.",
            unit="bytes", least=1, most=8 * 1024**2),
    Setting("kv.total_size_max", "int", 1024**2,
            "The size of all its names and values; a change that exceeds it is refused.",
            unit="bytes", least=1, most=8 * 1024**2),
    Setting("routes.size_max", "int", 256 * 1024**2,
            "Memory for the topics of all brokers. Brokers of one host may take half of the space "
            "that other hosts leave; topics beyond it are refused, known topics stay.",
            unit="bytes", least=1024**2, most=LONG_MAX),
)

#: A name server has no accounts, so any client that reaches its port may send a change (318) of
#: these settings. None of them can stop a name server, now or at its next start: the set contains
#: no address, path, plugin, period or file size, and no setting that makes the server refuse
#: routes.
NAMESRV_OPEN: Final = frozenset({
    "orderMessageEnable", "returnOrderTopicConfigToBroker", "supportActingMaster",
    "notifyMinBrokerIdChanged", "enableAllTopicList", "enableTopicList",
    "deleteTopicWithBrokerRegistration", "kv.value_size_max", "kv.total_size_max", "log.level",
    "log.levels", "log.slow_request",
})

#: TLS and proxies of both servers; they are read at the start, and no tool may change them.
TLS_ROWS: Final = (
    Setting("tls.server.mode", "text", "permissive",
            "Whether clients speak TLS: no client may, every client may, or every client must.",
            choices=("disabled", "permissive", "enforcing"), source=_TLS, is_fixed=True),
    Setting("tls.test.mode.enable", "flag", True,
            "Whether the server makes a certificate at the start that clients cannot verify, and "
            "the client verifies no server.", source=_TLS, is_fixed=True,
            default_text="true for a side that has no files and does not have to verify its peers"),
    Setting("tls.config.file", "path", "/etc/rocketmq/tls.properties",
            "A file with the settings below, used where they are not set elsewhere.",
            source=_TLS, is_fixed=True),
    Setting("tls.server.certPath", "path", "",
            "The server's certificate, followed by intermediate certificates, PEM.",
            source=_TLS, is_fixed=True),
    Setting("tls.server.keyPath", "path", "", "Its private key, PEM.", source=_TLS,
            is_fixed=True, default_text="in tls.server.certPath"),
    Setting("tls.server.keyPassword", "text", "", "The key's password; never shown.",
            source=_TLS, is_fixed=True, is_secret=True),
    Setting("tls.server.trustCertPath", "path", "",
            "The authorities whose clients are let in, PEM.", source=_TLS, is_fixed=True,
            default_text="the system's"),
    Setting("tls.server.authClient", "flag", False,
            "Whether a client's certificate must be one of those authorities'.", source=_TLS,
            is_fixed=True),
    Setting("tls.server.need.client.auth", "text", "none",
            "Whether clients are asked for a certificate, and must have one.",
            choices=("none", "optional", "require"), source=_TLS, is_fixed=True,
            default_text="require under tls.server.authClient=true, else none"),
    Setting("tls.enable", "flag", False,
            "Whether connections to other servers speak TLS.", source=_TLS, is_fixed=True,
            default_text="true under tls.server.mode=enforcing"),
    Setting("tls.client.certPath", "path", "",
            "The certificate that other servers are shown when they ask, PEM.", source=_TLS,
            is_fixed=True),
    Setting("tls.client.keyPath", "path", "", "Its private key, PEM.", source=_TLS,
            is_fixed=True, default_text="in tls.client.certPath"),
    Setting("tls.client.keyPassword", "text", "", "The key's password; never shown.",
            source=_TLS, is_fixed=True, is_secret=True),
    Setting("tls.client.trustCertPath", "path", "",
            "The authorities whose servers are connected to, PEM.", source=_TLS,
            is_fixed=True, default_text="the system's"),
    Setting("tls.client.authServer", "flag", False,
            "Whether a server's certificate must be one of those authorities'.", source=_TLS,
            is_fixed=True),
    Setting("tls.client.host_check", "flag", False,
            "Whether the certificate must also name the host; Apache's clients never check this.",
            is_fixed=True),
    Setting("proxy.trusted", "names", (),
            "Addresses and networks whose PROXY headers are accepted; * for any.",
            is_fixed=True, default_text="any; under aclEnable none"),
)

#: Our own settings: the logs of every command.
LOG_ROWS: Final = (
    Setting("log.dir", "path", "", "The folder of the log files.",
            default_text="logs in the folder of the data", at_start=True),
    Setting("log.output", "text", "file",
            "Whether the log is a file in log.dir, or is written to standard error, as containers "
            "expect. Brokers of `--brokers` and `--group` always write files.",
            choices=("file", "stderr"), at_start=True),
    Setting("log.format", "text", "text",
            "Whether an event is a line of text, or a JSON object on one line with time, level, "
            "logger, message and, for an error, failure.",
            choices=("text", "json"), at_start=True),
    Setting("log.level", "text", "info", "The lowest level of events that are logged.",
            choices=("debug", "info", "warn", "error", "critical")),
    Setting("log.levels", "names", (),
            "Levels of single parts, such as `twistmq.broker.store=debug,twisted=error`; a part's "
            "level is the longest name's that it begins with, else log.level.",
            default_text="none"),
    Setting("log.slow_request", "int", 1000,
            "A request that takes longer is logged, ten lines a minute at most; 0: no request is.",
            unit="ms"),
    Setting("log.size_max", "int", 16 * 1024**2, "A log file that has grown to this is rotated.",
            unit="bytes", least=4096),
    Setting("log.files_max", "int", 10, "Rotated log files that are kept.",
            unit="files", least=1),
)

#: Our own settings: the selection of plugins.
PLUGIN_ROWS: Final = (
    Setting("plugins.enabled", "names", (),
            "If set, only these plugins are used: stock plugins that it does not name are off, "
            "too.",
            default_text="all that are installed", at_start=True),
    Setting("plugins.disabled", "names", (), "These plugins are not used, even if plugins.enabled "
                                             "names them.",
            at_start=True),
)


def _listen_port(default: int) -> Setting:
    return Setting("listenPort", "int", default, "The port to listen on; 0 takes a free one.",
                   most=65_535, source=_SERVER, important=True, at_start=True, of_each="port")


#: Our own setting: the name server's port under ``twistmq up``, where listenPort is the port of the
#: broker.
_NAMESRV_PORT: Final = Setting(
    "namesrv.port", "int", 9876, "The name server's port under `twistmq up`; 0 takes a free one.",
    most=65_535, important=True, at_start=True,
)


def namesrv_rows() -> tuple[Setting, ...]:
    """Return the settings of ``twistmq namesrv``."""
    return (*NAMESRV_CONFIG, _listen_port(9876), *NETTY_SERVER_CONFIG, *TLS_ROWS, *PLUGIN_ROWS,
            *LOG_ROWS)


def broker_rows() -> tuple[Setting, ...]:
    """Return the settings of ``twistmq broker`` without the settings of plugins."""
    return (*BROKER_CONFIG, _listen_port(10911), *NETTY_SERVER_CONFIG, *NETTY_CLIENT_CONFIG,
            *MESSAGE_STORE_CONFIG, *TLS_ROWS, *PLUGIN_ROWS, *LOG_ROWS)


def up_rows() -> tuple[Setting, ...]:
    """Return the settings of ``twistmq up``, for a broker and a name server."""
    broker = broker_rows()
    names = {row.name for row in broker}
    return (*broker, _NAMESRV_PORT, *(row for row in NAMESRV_CONFIG if row.name not in names))
