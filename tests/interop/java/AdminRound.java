import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.body.BrokerStatsData;
import org.apache.rocketmq.remoting.protocol.body.CMResult;
import org.apache.rocketmq.remoting.protocol.body.ConsumeStatsList;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.body.QueueTimeSpan;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What tools ask of a broker and, through it, of a consumer that runs: java AdminRound NAMESRV
 * BROKER.
 */
public final class AdminRound {
    private static final int MESSAGES = 10;
    private final String id = Long.toString(System.currentTimeMillis(), 36);
    private final String topic = "AdminT-" + id;
    private final String group = "AdminG-" + id;
    private final String broker;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(Clients.SEND_TIMEOUT_MS);
    private final Sink sink = new Sink();
    private final DefaultMQProducer producer;
    private DefaultMQPushConsumer consumer;
    private String clientId;
    private String messageId;

    private AdminRound(String namesrv, String broker) throws Exception {
        this.broker = broker;
        Clients.use(namesrv);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName(Clients.instance());
        admin.setMqClientApiTimeout(Clients.SEND_TIMEOUT_MS);
        admin.start();
        producer = Clients.producer("AdminP-" + id);
    }

    public static void main(String[] args) {
        int status = 0;
        try {
            AdminRound round = new AdminRound(args[0], args[1]);
            round.run();
            System.out.println("ok " + Check.count() + " checks");
        } catch (Throwable e) {
            e.printStackTrace(System.out);
            status = 1;
        }
        System.out.flush();
        Runtime.getRuntime().halt(status);
    }

    private void run() throws Exception {
        begin();
        asked();
        consumeDirectly();
        figures();
        cloned();
        moved();
        forbidden();
        settings();
    }

    /** A consumer that has consumed everything and said so. */
    private void begin() throws Exception {
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(topic, 2, 2));
        Check.until("the route", () -> producer.fetchPublishMessageQueues(topic).size() == 2);
        for (int i = 0; i < MESSAGES; i++) {
            SendResult result = producer.send(Clients.text(topic, "T", "asked-" + i));
            messageId = Clients.sent(result).getOffsetMsgId();
        }
        // Asked at once: on a busy machine what follows takes more than a minute. Apache's broker
        // takes its first sample within ten seconds.
        Check.until("the minute has all messages", () ->
            data("TOPIC_PUT_NUMS", topic).getStatsMinute().getSum() == MESSAGES);
        Check.until("and their bytes", () ->
            data("TOPIC_PUT_SIZE", topic).getStatsMinute().getSum() > 100L * MESSAGES);
        consumer = Clients.idlePush(group, topic, "*", null);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.registerMessageListener(sink);
        consumer.start();
        clientId = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        Check.until("all is consumed", () -> sink.bodySet().size() == MESSAGES);
        Check.until("the group's minute has all messages", () ->
            data("GROUP_GET_NUMS", topic + "@" + group).getStatsMinute().getSum() == MESSAGES);
        consumed(group, MESSAGES);
    }

    private void consumed(String which, long count) throws Exception {
        Check.until(which + " has come to " + count, () -> offsets(which) == count);
    }

    private long offsets(String which) throws Exception {
        ConsumeStats stats = admin.examineConsumeStats(which, topic);
        return stats.getOffsetTable().entrySet().stream()
            .filter(entry -> entry.getKey().getTopic().equals(topic))
            .mapToLong(entry -> entry.getValue().getConsumerOffset()).sum();
    }

    /** The consumer says the same as the broker. */
    private void asked() throws Exception {
        Map<String, Map<MessageQueue, Long>> said = admin.getConsumeStatus(topic, group, clientId);
        Check.same(java.util.Set.of(clientId), said.keySet(), "who says how far it is");
        Check.same((long) MESSAGES, said.get(clientId).values().stream()
            .mapToLong(Long::longValue).sum(), "what it says");
        Check.same(said, admin.getConsumeStatus(topic, group, ""), "all members");
        ConsumerRunningInfo info = admin.getConsumerRunningInfo(group, clientId, false);
        Check.that(info.getSubscriptionSet().stream().anyMatch(
            each -> each.getTopic().equals(topic)), "what it subscribes to");
        Check.that(admin.queryTopicsByConsumer(group).getTopicList().contains(topic),
            "the topics of the group");
        Check.same("*", admin.querySubscription(group, topic).getSubString(), "its subscription");
        for (QueueTimeSpan span : admin.queryConsumeTimeSpan(topic, group)) {
            Check.same(topic, span.getMessageQueue().getTopic(), "the queue");
            Check.same(span.getMaxTimeStamp(), span.getConsumeTimeStamp(), "nothing is left");
            Check.same(0L, span.getDelayTime(), "nothing waits");
            Check.that(span.getMinTimeStamp() > 0, "there are messages");
        }
        Check.that(admin.getAllProducerInfo(broker).getData().containsKey("AdminP-" + id),
            "the producer is there");
    }

    private void consumeDirectly() throws Exception {
        int before = sink.size();
        Check.same(CMResult.CR_SUCCESS, admin.consumeMessageDirectly(
            group, clientId, topic, messageId).getConsumeResult(), "the message is consumed again");
        Check.same(before + 1, sink.size(), "by the consumer");
        Check.same("asked-" + (MESSAGES - 1), Sink.text(sink.messages.get(before)), "that one");
    }

    private void figures() throws Exception {
        ConsumeStatsList list = admin.fetchConsumeStatsInBroker(broker, false, 10_000);
        long queues = list.getConsumeStatsList().stream()
            .filter(each -> each.containsKey(group)).flatMap(each -> each.get(group).stream())
            .flatMap(each -> each.getOffsetTable().keySet().stream())
            .filter(queue -> queue.getTopic().equals(topic)).count();
        Check.same(2L, queues, "the group's queues of the topic");
        Check.same(broker, list.getBrokerAddr(), "which broker");
    }

    private BrokerStatsData data(String name, String key) throws Exception {
        return admin.viewBrokerStatsData(broker, name, key);
    }

    private void cloned() throws Exception {
        String other = "AdminClone-" + id;
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(other);
        admin.createAndUpdateSubscriptionGroupConfig(broker, config);
        admin.cloneGroupOffset(group, other, topic, false);
        Check.same((long) MESSAGES, offsets(other), "where the clone begins");
    }

    /** The group goes back while its consumer runs, and gets everything again. */
    private void moved() throws Exception {
        sink.messages.clear();
        Map<MessageQueue, Long> to = admin.resetOffsetByTimestamp(topic, group, 0, true);
        Check.same(java.util.Set.of(0, 1), to.keySet().stream().map(MessageQueue::getQueueId)
            .collect(Collectors.toSet()), "both queues go back");
        Check.same(java.util.Set.of(0L), java.util.Set.copyOf(to.values()), "to the beginning");
        // A pull that waits goes there when it ends, or something arrives.
        for (MessageQueue queue : to.keySet()) {
            Clients.sent(producer.send(Clients.text(topic, "T", "wake"), queue));
        }
        Check.until("all comes again", () -> sink.bodySet().size() == MESSAGES + 1);
        consumed(group, MESSAGES + 2);
    }

    private void forbidden() throws Exception {
        Check.same(false, admin.updateAndGetGroupReadForbidden(broker, group, topic, false)
            .getReadable(), "the group may not read");
        Check.same(false, admin.updateAndGetGroupReadForbidden(broker, group, topic, null)
            .getReadable(), "and may still not");
        Check.same(true, admin.updateAndGetGroupReadForbidden(broker, group, topic, true)
            .getReadable(), "it may again");
        Clients.sent(producer.send(Clients.text(topic, "T", "allowed")));
        Check.until("it does", () -> sink.bodySet().contains("allowed"));
    }

    private void settings() throws Exception {
        Properties changes = new Properties();
        changes.setProperty("fileReservedTime", "71");
        admin.updateBrokerConfig(broker, changes);
        Check.same("71", admin.getBrokerConfig(broker).getProperty("fileReservedTime"),
            "what is shown");
        changes.setProperty("brokerConfigPath", "/elsewhere");
        try {
            admin.updateBrokerConfig(broker, changes);
            Check.that(false, "the black list holds");
        } catch (Exception e) {
            Check.that(e.getMessage().contains("black list"), "the refusal says why");
        }
    }
}
