import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every way to send, into a topic that the broker creates on the way, and what arrives of it. */
final class SendRound {
    private static final int ASYNC_COUNT = 8;
    private static final int ONEWAY_COUNT = 8;
    private static final int BATCH_COUNT = 10;
    private static final int LARGE_SIZE = 3 * 1024 * 1024;
    private final String topic;
    private final DefaultMQProducer producer;
    private final Map<String, Message> expected = new HashMap<>();

    SendRound(String id, DefaultMQProducer producer) {
        this.topic = "SpineSend-" + id;
        this.producer = producer;
    }

    void run() throws Exception {
        autoCreated();
        async();
        for (int i = 0; i < ONEWAY_COUNT; i++) {
            producer.sendOneway(message("oneway-" + i));
        }
        batch();
        large();
        vip();
        Check.until("every message has a queue offset",
            () -> Clients.messageCount(producer, topic) == expected.size());
        consumeAll();
        tagExpression();
    }

    /** A message with text outside ASCII and outside the basic plane in every place that takes text. */
    private Message message(String body) {
        String name = name(body);
        Message message = Clients.text(topic, "标签", body);
        message.setKeys("ключ-" + name + " clé-" + name);
        message.putUserProperty("имя свойства", "значение ☃ 𝄞 " + name);
        message.putUserProperty("x", "=,;:");
        message.setFlag(7);
        expected.put(body, message);
        return message;
    }

    private static String name(String body) {
        return body.length() > 20 ? "large" : body;
    }

    private void autoCreated() throws Exception {
        SendResult result = Clients.sent(producer.send(message("sync-0")));
        Check.same(topic, result.getMessageQueue().getTopic(), "topic of the reply");
        Check.same(0L, result.getQueueOffset(), "first offset of a new queue");
        Check.that(result.getMsgId().length() >= 32, "client message id " + result.getMsgId());
        Check.that(result.getOffsetMsgId().length() >= 32, "offset id " + result.getOffsetMsgId());
        Check.until("the new topic's route has four queues",
            () -> producer.fetchPublishMessageQueues(topic).size() == 4);
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(3);
        SendResult direct = Clients.sent(producer.send(message("sync-1"), queue));
        Check.same(queue, direct.getMessageQueue(), "queue that was asked for");
        SendResult selected = Clients.sent(
            producer.send(message("sync-2"), (queues, m, arg) -> queues.get((Integer) arg), 2));
        Check.same(2, selected.getMessageQueue().getQueueId(), "queue that a selector chose");
    }

    private void async() throws Exception {
        CountDownLatch done = new CountDownLatch(ASYNC_COUNT);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < ASYNC_COUNT; i++) {
            producer.send(message("async-" + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    failure.set(e);
                    done.countDown();
                }
            }, Clients.SEND_TIMEOUT_MS);
        }
        Check.that(done.await(Check.WAIT_MS, TimeUnit.MILLISECONDS), "async sends are answered");
        Check.same(null, failure.get(), "async failure");
    }

    private void batch() throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < BATCH_COUNT; i++) {
            batch.add(message("batch-" + i));
        }
        SendResult result = Clients.sent(producer.send(batch));
        Check.same(BATCH_COUNT, result.getMsgId().split(",").length, "client ids of a batch");
        Check.same(BATCH_COUNT, result.getOffsetMsgId().split(",").length, "offset ids of a batch");
    }

    private void large() throws Exception {
        StringBuilder text = new StringBuilder();
        for (int i = 0; text.length() < LARGE_SIZE; i++) {
            text.append("line ").append(i).append(" of a body that compresses well\n");
        }
        String body = text.substring(0, LARGE_SIZE);
        Check.same(LARGE_SIZE, body.getBytes(StandardCharsets.UTF_8).length, "size of the body");
        Clients.sent(producer.send(message(body)));
    }

    /** The same broker at its port less two, which clients may use for sends. */
    private void vip() throws Exception {
        DefaultMQProducer vip = Clients.idleProducer("SpineVip");
        vip.setVipChannelEnabled(true);
        vip.start();
        Clients.sent(vip.send(message("vip-0")));
        vip.shutdown();
    }

    private void consumeAll() throws Exception {
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = Clients.push("SpineSendG-" + topic, topic, "*", sink);
        Check.until("every message arrives", () -> sink.bodySet().equals(expected.keySet()));
        Check.same(expected.size(), sink.size(), "nothing arrives twice");
        for (MessageExt got : sink.messages) {
            compare(expected.get(Sink.text(got)), got);
        }
        batchIsConsecutive(sink);
        consumer.shutdown();
    }

    private void compare(Message sent, MessageExt got) {
        String name = name(Sink.text(got));
        Check.same(topic, got.getTopic(), name + ": topic");
        Check.same(sent.getTags(), got.getTags(), name + ": tags");
        Check.same(sent.getKeys(), got.getKeys(), name + ": keys");
        Check.same(7, got.getFlag(), name + ": flag");
        Check.same(0, got.getReconsumeTimes(), name + ": reconsume times");
        for (String key : new String[] {"имя свойства", "x"}) {
            Check.same(sent.getUserProperty(key), got.getUserProperty(key), name + ": " + key);
        }
        Check.that(got.getBornTimestamp() <= got.getStoreTimestamp() + 1000, name + ": born later");
        Check.same("127.0.0.1", ((java.net.InetSocketAddress) got.getStoreHost()).getAddress()
            .getHostAddress(), name + ": store host");
        if (name.equals("large")) {
            Check.that(got.getStoreSize() < LARGE_SIZE / 4, "the client's compression is kept");
        }
    }

    private static void batchIsConsecutive(Sink sink) {
        Map<String, MessageExt> byBody = new HashMap<>();
        sink.messages.forEach(message -> byBody.put(Sink.text(message), message));
        MessageExt first = byBody.get("batch-0");
        for (int i = 1; i < BATCH_COUNT; i++) {
            MessageExt next = byBody.get("batch-" + i);
            Check.same(first.getQueueId(), next.getQueueId(), "queue of batch-" + i);
            Check.same(first.getQueueOffset() + i, next.getQueueOffset(), "offset of batch-" + i);
        }
    }

    private void tagExpression() throws Exception {
        String tagTopic = topic.replace("Send", "Tags");
        List<String> wanted = new ArrayList<>();
        for (int i = 0; i < 12; i++) {
            String tag = i % 4 == 0 ? "TagA" : i % 4 == 1 ? "TagB" : i % 4 == 2 ? "TagC" : null;
            Clients.sent(producer.send(Clients.text(tagTopic, tag, "tag-" + i)));
            if (i % 4 < 2) {
                wanted.add("tag-" + i);
            }
        }
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer =
            Clients.push("SpineTagG-" + tagTopic, tagTopic, "TagA || TagB", sink);
        Check.until("TagA and TagB arrive", () -> sink.bodySet().containsAll(wanted));
        // One more of a wanted tag in each queue: what lies before it has been read and filtered.
        for (MessageQueue queue : producer.fetchPublishMessageQueues(tagTopic)) {
            String body = "last-" + queue.getQueueId();
            Clients.sent(producer.send(Clients.text(tagTopic, "TagB", body), queue));
            wanted.add(body);
        }
        Check.until("the last ones arrive", () -> sink.bodySet().containsAll(wanted));
        Check.same(new TreeSet<>(wanted), sink.bodySet(), "only TagA and TagB");
        consumer.shutdown();
    }
}
