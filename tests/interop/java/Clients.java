import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.consumer.store.RemoteBrokerOffsetStore;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Makes the round's clients, each with an instance name of its own so that none shares a link. */
final class Clients {
    /** Of sends and of all other requests: by default 3 s, and who waits for a processor is late. */
    static final int SEND_TIMEOUT_MS = 15_000;
    /**
     * The client leaves out a heartbeat while another is under way and makes up for it at the next
     * interval, by default 30 s later; until then the broker does not know what it subscribes to.
     */
    static final int HEARTBEAT_MS = 2_000;
    private static final AtomicInteger INSTANCE = new AtomicInteger();
    private static String namesrv;

    private Clients() {
    }

    static void use(String namesrvAddress) {
        namesrv = namesrvAddress;
    }

    /** Reads standard input; the thread ends with it. */
    static Thread readInput() {
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException e) {
                e.printStackTrace();
            }
        });
        input.setDaemon(true);
        input.start();
        return input;
    }

    /** Prints each body that comes, until standard input ends. */
    static void tellWhileThereIsInput(Sink sink) throws InterruptedException {
        Thread input = readInput();
        int told = 0;
        while (input.isAlive()) {
            for (; told < sink.size(); told++) {
                System.out.println("got " + sink.bodies().get(told));
            }
            System.out.flush();
            TimeUnit.MILLISECONDS.sleep(20);
        }
    }

    static String instance() {
        return "round-" + ProcessHandle.current().pid() + "-" + INSTANCE.incrementAndGet();
    }

    static DefaultMQProducer producer(String group) throws Exception {
        DefaultMQProducer producer = idleProducer(group);
        producer.start();
        return producer;
    }

    static DefaultMQProducer idleProducer(String group) {
        DefaultMQProducer producer = new DefaultMQProducer(group, Keys.hook(null));
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(instance());
        producer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        producer.setMqClientApiTimeout(SEND_TIMEOUT_MS);
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        return producer;
    }

    static DefaultMQPushConsumer push(String group, String topic, String tags, Sink sink)
        throws Exception {
        DefaultMQPushConsumer consumer = idlePush(group, topic, tags, null);
        consumer.registerMessageListener(sink);
        consumer.start();
        return consumer;
    }

    /** Not started yet, so that the caller can set a listener, a model or one thread only. */
    static DefaultMQPushConsumer idlePush(String group, String topic, String tags, RPCHook hook)
        throws Exception {
        // This constructor is one that 4.9 and 5.x share.
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(group, Keys.hook(hook), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance());
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setMqClientApiTimeout(SEND_TIMEOUT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, tags);
        return consumer;
    }

    static DefaultLitePullConsumer litePull(String group) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group, Keys.hook(null));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance());
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setMqClientApiTimeout(SEND_TIMEOUT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.start();
        return consumer;
    }

    /** Not started yet. */
    @SuppressWarnings("deprecation")
    static DefaultMQPullConsumer idlePull(String group) {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, Keys.hook(null));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance());
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setMqClientApiTimeout(SEND_TIMEOUT_MS);
        consumer.setConsumerPullTimeoutMillis(SEND_TIMEOUT_MS);
        return consumer;
    }

    static Message text(String topic, String tags, String body) {
        return new Message(topic, tags, body.getBytes(StandardCharsets.UTF_8));
    }

    /** Send count texts, one after the other round the queues; return their bodies. */
    static List<String> sendTexts(DefaultMQProducer producer, String topic, String tags,
        String prefix, int count) throws Exception {
        List<String> bodies = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            String body = prefix + "-" + i;
            sent(producer.send(text(topic, tags, body)));
            bodies.add(body);
        }
        return bodies;
    }

    static SendResult sent(SendResult result) {
        Check.same(SendStatus.SEND_OK, result.getSendStatus(), "send status");
        return result;
    }

    /** The queues a push consumer holds now; read from its rebalance table, as nothing public tells. */
    static Set<MessageQueue> held(DefaultMQPushConsumer consumer, String topic) {
        Set<MessageQueue> queues = new TreeSet<>();
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(topic)) {
                queues.add(queue);
            }
        }
        return queues;
    }

    /** Messages in a topic, by its queues' highest offsets. */
    static long messageCount(DefaultMQProducer producer, String topic) throws Exception {
        long count = 0;
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            count += producer.maxOffset(queue);
        }
        return count;
    }

    /**
     * What the broker has of a consumer's offset once it was told; -1: nothing. The consumer's own
     * store would take over what it reads, and forget what was consumed meanwhile.
     */
    static long committed(DefaultMQPushConsumer consumer, MessageQueue queue) {
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        return new RemoteBrokerOffsetStore(
            consumer.getDefaultMQPushConsumerImpl().getmQClientFactory(),
            consumer.getConsumerGroup()).readOffset(queue, ReadOffsetType.READ_FROM_STORE);
    }
}
