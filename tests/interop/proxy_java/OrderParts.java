import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Messages in order, by message group. */
final class OrderParts {
    private static final List<String> MESSAGE_GROUPS = List.of("red", "green", "blue");
    private static final int COUNT = 8;

    private OrderParts() {
    }

    private static Map<String, List<String>> send(Proxied proxied, String topic) throws Exception {
        Map<String, List<String>> sent = new LinkedHashMap<>();
        try (Producer producer = proxied.producer(topic)) {
            for (int i = 0; i < COUNT; i++) {
                for (String group : MESSAGE_GROUPS) {
                    String body = group + "-" + i;
                    producer.send(proxied.message(topic, body).setMessageGroup(group).build());
                    sent.computeIfAbsent(group, any -> new ArrayList<>()).add(body);
                }
            }
        }
        return sent;
    }

    /** A push consumer is given each group in order, and a failed message again before the next. */
    static void push(Proxied proxied) throws Exception {
        String topic = "ProxyFifo";
        Map<String, List<String>> received = new ConcurrentHashMap<>();
        Set<String> failed = ConcurrentHashMap.newKeySet();
        PushConsumer consumer = proxied.push(topic, 4, message -> {
            String body = Proxied.text(message);
            if (body.endsWith("-3") && failed.add(body)) {
                return ConsumeResult.FAILURE;
            }
            received.computeIfAbsent(message.getMessageGroup().orElseThrow(),
                any -> new CopyOnWriteArrayList<>()).add(body);
            return ConsumeResult.SUCCESS;
        });
        try (consumer) {
            Map<String, List<String>> sent = send(proxied, topic);
            Check.until("all come", () -> received.values().stream().mapToInt(List::size).sum()
                >= COUNT * MESSAGE_GROUPS.size());
            Check.same(sent, new LinkedHashMap<>(received), "order of each group");
            Check.same(MESSAGE_GROUPS.size(), failed.size(), "messages that failed once");
        }
    }

    /** While a message of a queue is not acknowledged a simple consumer gets none that follow it. */
    static void simple(Proxied proxied) throws Exception {
        String topic = "ProxyFifoSimple";
        try (SimpleConsumer consumer = proxied.simple(topic);
            Producer producer = proxied.producer(topic)) {
            for (String body : List.of("first", "second")) {
                producer.send(proxied.message(topic, body).setMessageGroup("one").build());
            }
            List<MessageView> first = new ArrayList<>();
            Check.until("the first comes", () ->
                first.addAll(consumer.receive(1, Duration.ofSeconds(20))));
            Check.same("first", Proxied.text(first.get(0)), "first in order");
            Proxied.nothing(consumer, "behind one that is not acknowledged");
            consumer.ack(first.get(0));
            Check.same(List.of("second"), Proxied.consume(consumer, 1), "second in order");
        }
    }
}
