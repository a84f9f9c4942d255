import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultLitePullConsumer: assigned queues, seek, commits, and the subscribing mode. */
final class LitePullRound {
    private static final int COUNT = 20;
    private final String topic;
    private final DefaultMQProducer producer;

    LitePullRound(String id, DefaultMQProducer producer) {
        this.topic = "SpineLite-" + id;
        this.producer = producer;
    }

    void run() throws Exception {
        Clients.sendTexts(producer, topic, "T", "seed", 1);
        Check.until("route of " + topic,
            () -> producer.fetchPublishMessageQueues(topic).size() == 4);
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(0);
        long base = producer.maxOffset(queue);
        for (int i = 0; i < COUNT; i++) {
            Clients.sent(producer.send(Clients.text(topic, "T", "lite-" + i), queue));
        }
        seeking(queue, base);
        subscribed();
    }

    private void seeking(MessageQueue queue, long base) throws Exception {
        DefaultLitePullConsumer consumer = Clients.litePull("SpineLiteG-" + topic);
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        Check.same(4, queues.size(), "queues to pull from");
        consumer.assign(List.of(queue));
        // The message that made the topic may lie in this queue too.
        Check.same(base > 0 ? "seed-0" : "lite-0", textAt(consumer, 0, base + COUNT),
            "from the first offset on");
        consumer.seek(queue, base + 7);
        Check.same("lite-7", textAt(consumer, base + 7, base + COUNT), "after seek");
        consumer.seek(queue, base + 15);
        Check.same("lite-15", textAt(consumer, base + 15, base + COUNT), "after seek onwards");
        consumer.seekToBegin(queue);
        textAt(consumer, 0, base + COUNT);
        consumer.seekToEnd(queue);
        Clients.sent(producer.send(Clients.text(topic, "T", "after-end"), queue));
        Check.same("after-end", textAt(consumer, base + COUNT, base + COUNT + 1), "after the end");
        long now = System.currentTimeMillis();
        Check.same(0L, consumer.offsetForTimestamp(queue, now - 3_600_000), "offset of a past time");
        consumer.commitSync();
        Check.same(base + COUNT + 1, consumer.committed(queue), "committed");
        consumer.shutdown();
        DefaultLitePullConsumer next = Clients.litePull("SpineLiteG-" + topic);
        next.assign(List.of(queue));
        Check.until("the commit reached the broker",
            () -> next.committed(queue) == base + COUNT + 1);
        Clients.sent(producer.send(Clients.text(topic, "T", "after-commit"), queue));
        Check.same("after-commit",
            textAt(next, base + COUNT + 1, base + COUNT + 2), "from the commit on");
        next.shutdown();
    }

    /** Poll from offset first until the queue's end; every offset comes once, in order. */
    private static String textAt(DefaultLitePullConsumer consumer, long first, long end)
        throws Exception {
        List<MessageExt> got = new ArrayList<>();
        Check.until("offsets " + first + " to " + end, () -> {
            got.addAll(consumer.poll(100));
            return got.size() >= end - first;
        });
        for (int i = 0; i < got.size(); i++) {
            Check.same(first + i, got.get(i).getQueueOffset(), "offset of poll " + i);
        }
        return Sink.text(got.get(0));
    }

    private void subscribed() throws Exception {
        DefaultLitePullConsumer consumer =
            new DefaultLitePullConsumer("SpineLiteSubG-" + topic, Keys.hook(null));
        DefaultLitePullConsumer like = Clients.litePull("SpineLiteUnusedG-" + topic);
        consumer.setNamesrvAddr(like.getNamesrvAddr());
        like.shutdown();
        consumer.setInstanceName(Clients.instance());
        consumer.setMqClientApiTimeout(Clients.SEND_TIMEOUT_MS);
        consumer.setHeartbeatBrokerInterval(Clients.HEARTBEAT_MS);
        consumer.setConsumeFromWhere(
            org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "T");
        consumer.start();
        List<String> got = new ArrayList<>();
        Check.until("a subscribing member gets everything", () -> {
            got.addAll(Sink.bodies(consumer.poll(100)));
            return got.size() == COUNT + 3;
        });
        consumer.shutdown();
    }
}
