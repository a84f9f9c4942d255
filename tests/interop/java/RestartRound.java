import java.io.Reader;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What must outlive broker and client. The first phase consumes some messages, commits, leaves and
 * sends more; between the phases the broker is restarted; the second asserts that consumption goes
 * on at the very next message. A properties file carries what the second has to know.
 */
final class RestartRound {
    private static final String GROUP = "SpineKeepG-";
    private static final String LITE_GROUP = "SpineKeepLiteG-";
    private static final int BEFORE = 20;
    private static final int AFTER = 12;
    private final DefaultMQProducer producer;
    private final Path file;
    private final Properties state = new Properties();

    RestartRound(DefaultMQProducer producer, Path file) {
        this.producer = producer;
        this.file = file;
    }

    void before(String id) throws Exception {
        String topic = "SpineKeep-" + id;
        state.setProperty("topic", topic);
        List<String> bodies = Clients.sendTexts(producer, topic, "T", "before", BEFORE);
        Check.until("route of " + topic,
            () -> producer.fetchPublishMessageQueues(topic).size() == 4);
        consumeAndCommit(topic, bodies);
        liteCommit(topic);
        Clients.sendTexts(producer, topic, "T", "after", AFTER);
        Message keyed = Clients.text("SpineKeepKey-" + id, "T", "kept");
        keyed.setKeys("kept-key");
        SendResult sent = Clients.sent(producer.send(keyed));
        state.setProperty("keyTopic", keyed.getTopic());
        state.setProperty("offsetId", sent.getOffsetMsgId());
        state.setProperty("uniqueId", sent.getMsgId());
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            state.setProperty("max." + queue.getQueueId(), "" + producer.maxOffset(queue));
        }
        try (Writer out = Files.newBufferedWriter(file)) {
            state.store(out, null);
        }
    }

    private void consumeAndCommit(String topic, List<String> bodies) throws Exception {
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = Clients.push(GROUP + topic, topic, "*", sink);
        Check.until("what was sent before arrives", () -> sink.bodySet().containsAll(bodies));
        Check.until("the broker has the offsets", () -> {
            for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
                if (Clients.committed(consumer, queue) != producer.maxOffset(queue)) {
                    return false;
                }
            }
            return true;
        });
        consumer.shutdown();
    }

    /** Commit part of one queue: the next member has to start in its middle. */
    private void liteCommit(String topic) throws Exception {
        DefaultLitePullConsumer consumer = Clients.litePull(LITE_GROUP + topic);
        consumer.setPullBatchSize(2);
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(1);
        consumer.assign(List.of(queue));
        List<MessageExt> got = new ArrayList<>();
        Check.until("the first two", () -> {
            got.addAll(consumer.poll(100));
            return !got.isEmpty();
        });
        consumer.commitSync();
        consumer.shutdown();
        state.setProperty("liteQueue", "" + queue.getQueueId());
        state.setProperty("liteOffset", "" + (got.get(got.size() - 1).getQueueOffset() + 1));
    }

    void after() throws Exception {
        try (Reader in = Files.newBufferedReader(file)) {
            state.load(in);
        }
        String topic = state.getProperty("topic");
        Check.until("the route is back",
            () -> producer.fetchPublishMessageQueues(topic).size() == 4);
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            Check.same(state.getProperty("max." + queue.getQueueId()),
                "" + producer.maxOffset(queue), "highest offset of queue " + queue.getQueueId());
        }
        liteContinues(topic);
        pushContinues(topic);
        stillFound();
    }

    private void liteContinues(String topic) throws Exception {
        DefaultLitePullConsumer consumer = Clients.litePull(LITE_GROUP + topic);
        MessageQueue queue = producer.fetchPublishMessageQueues(topic)
            .get(Integer.parseInt(state.getProperty("liteQueue")));
        consumer.assign(List.of(queue));
        List<MessageExt> got = new ArrayList<>();
        Check.until("lite pull goes on", () -> {
            got.addAll(consumer.poll(100));
            return !got.isEmpty();
        });
        Check.same(state.getProperty("liteOffset"), "" + got.get(0).getQueueOffset(),
            "lite pull goes on at its commit");
        consumer.shutdown();
    }

    private void pushContinues(String topic) throws Exception {
        TreeSet<String> wanted = new TreeSet<>();
        for (int i = 0; i < AFTER; i++) {
            wanted.add("after-" + i);
        }
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = Clients.idlePush(GROUP + topic, topic, "*", null);
        // One thread keeps the order of arrival, so the last message of a queue is the last seen.
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.registerMessageListener(sink);
        consumer.start();
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            String body = "last-" + queue.getQueueId();
            Clients.sent(producer.send(Clients.text(topic, "T", body), queue));
            wanted.add(body);
        }
        Check.until("what was not consumed arrives", () -> sink.bodySet().containsAll(wanted));
        Check.same(wanted, sink.bodySet(), "nothing else arrives");
        Check.same(wanted.size(), sink.size(), "each arrives once");
        consumer.shutdown();
    }

    private void stillFound() throws Exception {
        String topic = state.getProperty("keyTopic");
        for (String name : new String[] {"offsetId", "uniqueId"}) {
            Check.same("kept", Sink.text(producer.viewMessage(topic, state.getProperty(name))),
                "message by " + name);
        }
        List<MessageExt> found =
            producer.queryMessage(topic, "kept-key", 8, 0, Long.MAX_VALUE).getMessageList();
        Check.same(List.of("kept"), Sink.bodies(found), "message by key");
    }
}
