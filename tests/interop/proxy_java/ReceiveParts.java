import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Receipts, and what happens to messages that are not acknowledged. */
final class ReceiveParts {
    private static final Duration SHORT = Duration.ofSeconds(2);
    private static final int COUNT = 64;

    private ReceiveParts() {
    }

    /** A message comes again when its time is over, and when that time is changed. */
    static void invisible(Proxied proxied) throws Exception {
        String topic = "ProxyInvisible";
        try (SimpleConsumer consumer = proxied.simple(topic);
            Producer producer = proxied.producer(topic)) {
            producer.send(proxied.message(topic, "again").build());
            MessageView first = Proxied.take(consumer, 1, SHORT).get(0);
            Check.same(1, first.getDeliveryAttempt(), "first attempt");
            MessageView second = Proxied.take(consumer, 1, Proxied.HIDDEN).get(0);
            Check.same(first.getMessageId(), second.getMessageId(), "the same message");
            Check.same(2, second.getDeliveryAttempt(), "second attempt");
            refused(consumer, first);
            // Sooner than it was received for: without the change the wait were ten times as long.
            consumer.changeInvisibleDuration(second, SHORT);
            long changed = System.nanoTime();
            MessageView third = Proxied.take(consumer, 1, SHORT).get(0);
            long tookMs = (System.nanoTime() - changed) / 1_000_000;
            Check.that(tookMs < Proxied.HIDDEN.toMillis(), "it comes after " + tookMs + " ms");
            Check.same(3, third.getDeliveryAttempt(), "third attempt");
            // Later than it was received for, and acknowledged by the receipt of the change.
            consumer.changeInvisibleDuration(third, Proxied.HIDDEN);
            Thread.sleep(SHORT.toMillis() + 1000);
            Proxied.nothing(consumer, "that are hidden longer");
            consumer.ack(third);
        }
    }

    private static void refused(SimpleConsumer consumer, MessageView expired) {
        try {
            consumer.ack(expired);
            Check.that(false, "an expired receipt acknowledges");
        } catch (ClientException e) {
            Check.that(true, "an expired receipt is refused");
        }
    }

    /** Many messages at a time, acknowledged together without waiting for each. */
    static void batches(Proxied proxied) throws Exception {
        String topic = "ProxyBatches";
        Set<String> sent = new TreeSet<>();
        try (SimpleConsumer consumer = proxied.simple(topic);
            Producer producer = proxied.producer(topic)) {
            for (int i = 0; i < COUNT; i++) {
                sent.add("batch-" + i);
                producer.send(proxied.message(topic, "batch-" + i).build());
            }
            Set<String> received = new TreeSet<>();
            int largest = 0;
            while (received.size() < COUNT) {
                List<MessageView> batch = consumer.receive(16, Proxied.HIDDEN);
                Check.that(!batch.isEmpty(), "messages are left after " + received.size());
                largest = Math.max(largest, batch.size());
                Check.that(batch.size() <= 16, "no more than asked for");
                for (var each : batch.stream().map(consumer::ackAsync).toList()) {
                    each.get();
                }
                batch.forEach(message -> received.add(Proxied.text(message)));
            }
            Check.same(sent, received, "bodies");
            Check.that(largest > 1, "several messages at a time");
            Proxied.nothing(consumer, "after all batches");
        }
    }

    /** After the group's last attempt a message is in its dead letters: the caller looks there. */
    static void deadLetters(Proxied proxied) throws Exception {
        String topic = "ProxyDead";
        try (SimpleConsumer consumer = proxied.simple(topic);
            Producer producer = proxied.producer(topic)) {
            producer.send(proxied.message(topic, "dead").setKeys("dead-key").build());
            for (int attempt = 1; attempt <= 2; attempt++) {
                MessageView message = Proxied.take(consumer, 1, Duration.ofSeconds(1)).get(0);
                Check.same(attempt, message.getDeliveryAttempt(), "attempts");
            }
            for (int wait = 0; wait < 3; wait++) {
                Proxied.nothing(consumer, "after the last attempt");
            }
        }
    }

    /** Two members share the messages; those that fail come again. */
    static void push(Proxied proxied) throws Exception {
        String topic = "ProxyPush";
        Map<String, Integer> attempts = new ConcurrentHashMap<>();
        Set<String> done = ConcurrentHashMap.newKeySet();
        List<PushConsumer> members = new ArrayList<>();
        for (int member = 0; member < 2; member++) {
            members.add(proxied.push(topic, 4, message -> {
                String body = Proxied.text(message);
                attempts.merge(body, message.getDeliveryAttempt(), Math::max);
                if (body.endsWith("0") && message.getDeliveryAttempt() == 1) {
                    return ConsumeResult.FAILURE;
                }
                done.add(body);
                return ConsumeResult.SUCCESS;
            }));
        }
        try (Producer producer = proxied.producer(topic)) {
            for (int i = 0; i < COUNT / 2; i++) {
                producer.send(proxied.message(topic, "push-" + i).build());
            }
            Check.until("all are consumed", () -> done.size() == COUNT / 2);
            for (int i = 0; i < COUNT / 2; i++) {
                Check.same(i % 10 == 0 ? 2 : 1, attempts.get("push-" + i), "attempts of " + i);
            }
        } finally {
            for (PushConsumer member : members) {
                member.close();
            }
        }
        try (SimpleConsumer rest = proxied.simple(topic, topic, FilterExpression.SUB_ALL)) {
            Proxied.nothing(rest, "left over");
        }
    }
}
