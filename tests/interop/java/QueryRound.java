import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Finding messages again: by key, by both ids, and offsets by time. */
final class QueryRound {
    private final String topic;
    private final DefaultMQProducer producer;

    QueryRound(String id, DefaultMQProducer producer) {
        this.topic = "SpineQuery-" + id;
        this.producer = producer;
    }

    void run() throws Exception {
        String shared = "заказ-" + topic;
        SendResult first = send("query-0", shared + " k0-" + topic);
        long between = System.currentTimeMillis();
        Check.until("the clock moves on", () -> System.currentTimeMillis() > between + 1);
        SendResult second = send("query-1", shared + " k1-" + topic);
        Check.until("both are found by the key they share", () -> find(shared).size() == 2);
        Check.until("the index has the second's last key", () -> find("k1-" + topic).size() == 1);
        Check.same(new TreeSet<>(List.of("query-0", "query-1")),
            new TreeSet<>(Sink.bodies(find(shared))), "bodies found by a shared key");
        Check.same(List.of("query-1"), Sink.bodies(find("k1-" + topic)), "found by the second key");
        found(first, "query-0", producer.viewMessage(topic, first.getOffsetMsgId()));
        found(second, "query-1", producer.viewMessage(topic, second.getOffsetMsgId()));
        found(first, "query-0", producer.viewMessage(topic, first.getMsgId()));
        found(second, "query-1", producer.viewMessage(topic, second.getMsgId()));
        absent(shared);
        offsets(first.getMessageQueue());
    }

    private SendResult send(String body, String keys) throws Exception {
        Message message = new Message(topic, "Q", keys, body.getBytes(StandardCharsets.UTF_8));
        return Clients.sent(producer.send(message));
    }

    private List<MessageExt> find(String key) throws Exception {
        return producer.queryMessage(topic, key, 32, 0, Long.MAX_VALUE).getMessageList();
    }

    private void found(SendResult sent, String body, MessageExt message) {
        Check.same(body, Sink.text(message), "body of a viewed message");
        Check.same(sent.getMessageQueue().getQueueId(), message.getQueueId(), "its queue");
        Check.same(sent.getQueueOffset(), message.getQueueOffset(), "its offset");
        Check.same(topic, message.getTopic(), "its topic");
    }

    /** An unknown key, and a window of time that lies before the messages, find nothing. */
    private void absent(String key) throws Exception {
        for (boolean unknown : new boolean[] {true, false}) {
            try {
                List<MessageExt> found = producer.queryMessage(topic, unknown ? "no-such-key" : key,
                    32, 0, unknown ? Long.MAX_VALUE : 1000).getMessageList();
                Check.same(0, found.size(), "messages found in vain");
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                Check.that(e.getResponseCode() == 22 || e.getResponseCode() == 208,
                    "code " + e.getResponseCode() + " says that there is none");
            }
        }
    }

    private void offsets(MessageQueue queue) throws Exception {
        Check.same(1L, producer.maxOffset(queue), "highest offset");
        long stored = producer.earliestMsgStoreTime(queue);
        long now = System.currentTimeMillis();
        Check.that(stored > now - 3_600_000 && stored <= now + 1000, "earliest time " + stored);
        Check.same(0L, producer.searchOffset(queue, stored - 1000), "offset of an early time");
        Check.same(1L, producer.searchOffset(queue, now + 3_600_000), "offset of a later time");
    }
}
