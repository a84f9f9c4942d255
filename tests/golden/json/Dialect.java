// Prints how Apache's own classes write and read JSON: one case a line, name, tab, base64 of UTF-8.
// Run against the class path of a release:  peer.py java Dialect.java > dialect-5.3.3.txt
import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.*;
import org.apache.rocketmq.remoting.protocol.admin.*;
import org.apache.rocketmq.remoting.protocol.body.*;
import org.apache.rocketmq.remoting.protocol.heartbeat.*;
import org.apache.rocketmq.remoting.protocol.route.*;
import org.apache.rocketmq.remoting.protocol.statictopic.*;
import org.apache.rocketmq.remoting.protocol.subscription.*;

public class Dialect {
    static void put(String name, byte[] value) {
        System.out.println(name + "\t" + Base64.getEncoder().encodeToString(value));
    }

    static void both(String name, Object value) {
        put(name, RemotingSerializable.encode(value));
        put(name + ".pretty", RemotingSerializable.toJson(value, true).getBytes(StandardCharsets.UTF_8));
        put(name + ".standard", JSON.toJSONString(value, SerializerFeature.BrowserCompatible,
            SerializerFeature.QuoteFieldNames, SerializerFeature.SkipTransientField,
            SerializerFeature.MapSortField).getBytes(StandardCharsets.UTF_8));
    }

    static DataVersion version(long counter, long timestamp) {
        DataVersion version = new DataVersion();
        version.setTimestamp(timestamp);
        version.getCounter().set(counter);
        return version;
    }

    static <K, V> Map<K, V> map(Object... pairs) {
        Map<K, V> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put((K) pairs[i], (V) pairs[i + 1]);
        }
        return map;
    }

    public static void main(String[] args) throws Exception {
        values();
        routes();
        groups();
        tables();
        registration();
    }

    static void values() {
        StringBuilder ascii = new StringBuilder();
        for (char c = 0; c < 0xA2; c++) {
            ascii.append(c);
        }
        both("text.ascii", ascii.toString());
        both("text.unicode", "\u00e9\u4e2d\u2028\u2029\u200b\ufeff\uffff\ud83d\ude00\ue000\u3000");
        both("key.ascii", map(ascii.toString(), 1));
        both("key.unicode", map("\u4e2d\ud83d\ude00", 1));
        both("numbers", Arrays.asList(0, -1, 2147483647, 9007199254740991L, 9007199254740992L,
            -9007199254740993L, Long.MAX_VALUE, Long.MIN_VALUE));
        both("doubles", Arrays.asList(0.0, 1.0, -0.5, 0.1, 1e7, 1.0E10, 123456789.125, 1e-3, 1e-4,
            1e22, 1.7976931348623157E308, 0.3f, 100.0, 12345678.9));
        both("booleans", Arrays.asList(true, false, null));
        both("empty.map", new HashMap<>());
        both("empty.list", new ArrayList<>());
        both("nested.empty", map("a", new HashMap<>(), "b", new ArrayList<>(), "c", null));
        both("nested.list", Arrays.asList(Arrays.asList(1, 2), Arrays.asList(), map("a", 1)));
        both("integer.keys", map(0, 127L, 1, 126L));
        both("integer.keys.text", map(0L, "127.0.0.1:10911"));
        both("integer.keys.negative", map(-1, 1, Long.MAX_VALUE, 2));
        both("integer.keys.nested", map("T@G", map(0, 505L), "U@G", map(0, 1L, 1, 2L)));
        both("integer.keys.objects", map(0, map("a", 1), 1, map("b", map())));
        both("integer.keys.list", map(3, Arrays.asList(1, 2), 4, Arrays.asList()));
        both("object.keys", map(new MessageQueue("T", "broker-a", 0), map("x", 1),
            new MessageQueue("T", "broker-a", 1), 7L));
        both("object.keys.one", map("offsetTable", map(new MessageQueue("T", "b", 0), 5L)));
        both("boolean.keys", map(true, 1));
        both("null.key", map(null, 1));
    }

    static void routes() {
        TopicRouteData route = new TopicRouteData();
        QueueData queue = new QueueData();
        queue.setBrokerName("broker-a");
        queue.setReadQueueNums(4);
        queue.setWriteQueueNums(4);
        queue.setPerm(6);
        route.getQueueDatas().add(queue);
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(0L, "127.0.0.1:10911");
        addresses.put(1L, "127.0.0.1:20911");
        BrokerData broker = new BrokerData("DefaultCluster", "broker-a", addresses);
        route.getBrokerDatas().add(broker);
        both("TopicRouteData", route);
        route.setOrderTopicConf("broker-a:4");
        route.getFilterServerTable().put("127.0.0.1:10911", Arrays.asList("127.0.0.1:1"));
        broker.setZoneName("z\u4e2d");
        broker.setEnableActingMaster(true);
        TopicQueueMappingInfo info = new TopicQueueMappingInfo("T", 2, "broker-a", 9007199254740993L);
        info.getCurrIdMap().put(0, 1);
        route.setTopicQueueMappingByBroker(new HashMap<>(Map.of("broker-a", info)));
        both("TopicRouteData.full", route);
        ClusterInfo cluster = new ClusterInfo();
        cluster.setBrokerAddrTable(new HashMap<>(Map.of("broker-a", broker)));
        cluster.setClusterAddrTable(new HashMap<>(Map.of("DefaultCluster", new HashSet<>(Set.of("broker-a")))));
        both("ClusterInfo", cluster);
        BrokerMemberGroup group = new BrokerMemberGroup("DefaultCluster", "broker-a");
        group.getBrokerAddrs().put(0L, "127.0.0.1:10911");
        GetBrokerMemberGroupResponseBody body = new GetBrokerMemberGroupResponseBody();
        body.setBrokerMemberGroup(group);
        both("GetBrokerMemberGroupResponseBody", body);
        TopicList topics = new TopicList();
        topics.getTopicList().add("T");
        both("TopicList", topics);
        KVTable table = new KVTable();
        table.getTable().put("k", "v");
        both("KVTable", table);
    }

    static void groups() {
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("127.0.0.1@1");
        ProducerData producer = new ProducerData();
        producer.setGroupName("P");
        heartbeat.getProducerDataSet().add(producer);
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("G");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        SubscriptionData subscription = new SubscriptionData("T", "a || b");
        subscription.getTagsSet().addAll(Arrays.asList("a", "b"));
        subscription.getCodeSet().addAll(Arrays.asList(97, 98));
        subscription.setSubVersion(1700000000000L);
        consumer.getSubscriptionDataSet().add(subscription);
        heartbeat.getConsumerDataSet().add(consumer);
        both("HeartbeatData", heartbeat);
        ConsumerConnection consumers = new ConsumerConnection();
        Connection connection = new Connection();
        connection.setClientId("127.0.0.1@1");
        connection.setClientAddr("127.0.0.1:5000");
        connection.setLanguage(LanguageCode.JAVA);
        connection.setVersion(479);
        consumers.getConnectionSet().add(connection);
        consumers.getSubscriptionTable().put("T", subscription);
        consumers.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumers.setMessageModel(MessageModel.CLUSTERING);
        consumers.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        both("ConsumerConnection", consumers);
        ProducerConnection producers = new ProducerConnection();
        producers.getConnectionSet().add(connection);
        both("ProducerConnection", producers);
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName("G");
        SubscriptionGroupWrapper wrapper = new SubscriptionGroupWrapper();
        wrapper.setDataVersion(version(1, 1700000000000L));
        wrapper.getSubscriptionGroupTable().put("G", config);
        both("SubscriptionGroupWrapper", wrapper);
        GroupRetryPolicy policy = new GroupRetryPolicy();
        policy.setType(GroupRetryPolicyType.EXPONENTIAL);
        policy.setExponentialRetryPolicy(new ExponentialRetryPolicy());
        policy.setCustomizedRetryPolicy(new CustomizedRetryPolicy());
        both("GroupRetryPolicy", policy);
        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setConsumerGroup("G");
        lock.setClientId("C");
        lock.getMqSet().add(new MessageQueue("T", "broker-a", 0));
        both("LockBatchRequestBody", lock);
        LockBatchResponseBody locked = new LockBatchResponseBody();
        locked.getLockOKMQSet().add(new MessageQueue("T", "broker-a", 0));
        both("LockBatchResponseBody", locked);
        GroupList list = new GroupList();
        list.getGroupList().add("G");
        both("GroupList", list);
        CheckClientRequestBody check = new CheckClientRequestBody();
        check.setClientId("C");
        check.setGroup("G");
        check.setSubscriptionData(subscription);
        both("CheckClientRequestBody", check);
    }

    static void tables() {
        TopicStatsTable topics = new TopicStatsTable();
        TopicOffset offset = new TopicOffset();
        offset.setMaxOffset(127);
        offset.setLastUpdateTimestamp(1700000000000L);
        topics.getOffsetTable().put(new MessageQueue("T", "broker-a", 0), offset);
        both("TopicStatsTable", topics);
        ConsumeStats stats = new ConsumeStats();
        OffsetWrapper wrapper = new OffsetWrapper();
        wrapper.setBrokerOffset(127);
        wrapper.setConsumerOffset(100);
        wrapper.setLastTimestamp(1700000000000L);
        stats.getOffsetTable().put(new MessageQueue("T", "broker-a", 0), wrapper);
        stats.setConsumeTps(1.5);
        both("ConsumeStats", stats);
        ConsumerRunningInfo info = new ConsumerRunningInfo();
        info.getProperties().put("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY");
        info.getMqTable().put(new MessageQueue("T", "broker-a", 0), new ProcessQueueInfo());
        both("ConsumerRunningInfo", info);
        ResetOffsetBody reset = new ResetOffsetBody();
        reset.setOffsetTable(new HashMap<>(Map.of(new MessageQueue("T", "broker-a", 0), 5L)));
        both("ResetOffsetBody", reset);
        GetConsumerStatusBody status = new GetConsumerStatusBody();
        status.getMessageQueueTable().put(new MessageQueue("T", "broker-a", 0), 5L);
        both("GetConsumerStatusBody", status);
        ConsumerOffsetSerializeWrapper offsets = new ConsumerOffsetSerializeWrapper();
        offsets.setDataVersion(version(3, 1700000000000L));
        offsets.getOffsetTable().put("T@G", new java.util.concurrent.ConcurrentHashMap<>(Map.of(0, 127L)));
        both("ConsumerOffsetSerializeWrapper", offsets);
    }

    static void registration() throws Exception {
        RegisterBrokerBody body = new RegisterBrokerBody();
        TopicConfigAndMappingSerializeWrapper wrapper = new TopicConfigAndMappingSerializeWrapper();
        wrapper.setDataVersion(version(2, 1700000000000L));
        wrapper.setMappingDataVersion(version(4, 1700000000001L));
        TopicConfig topic = new TopicConfig("T", 4, 8, 6);
        topic.getAttributes().put("message.type", "FIFO");
        wrapper.getTopicConfigTable().put("T", topic);
        TopicQueueMappingInfo info = new TopicQueueMappingInfo("S", 2, "broker-a", 7);
        info.getCurrIdMap().put(0, 1);
        wrapper.getTopicQueueMappingInfoMap().put("S", info);
        body.setTopicConfigSerializeWrapper(wrapper);
        body.setFilterServerList(new ArrayList<>(Arrays.asList("127.0.0.1:1")));
        both("RegisterBrokerBody", body);
        put("RegisterBrokerBody.compressed", body.encode(true));
        put("TopicConfig.text", topic.encode().getBytes(StandardCharsets.UTF_8));
        TopicConfigSerializeWrapper plain = new TopicConfigSerializeWrapper();
        plain.setDataVersion(version(2, 1700000000000L));
        plain.getTopicConfigTable().put("T", topic);
        both("TopicConfigSerializeWrapper", plain);
    }
}
