import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.java.exception.BadRequestException;
import org.apache.rocketmq.client.java.exception.NotFoundException;

/** Sends, and what is refused. */
final class SendParts {
    private static final int COUNT = 8;
    /** Apache's limit is 4 MiB, header and properties included. */
    private static final int LARGE_BYTES = (4 << 20) - 1024;

    private SendParts() {
    }

    /** All that a message carries arrives, whichever way it is sent. */
    static void sends(Proxied proxied) throws Exception {
        String topic = "ProxySends";
        Map<String, String> ids = new TreeMap<>();
        try (SimpleConsumer consumer = proxied.simple(topic);
            Producer producer = proxied.producer(topic)) {
            for (int i = 0; i < COUNT; i++) {
                String body = "sync-" + i;
                SendReceipt receipt = producer.send(proxied.message(topic, body).setTag("Tag" + i)
                    .setKeys("key-" + i, "other").addProperty("имя", "значение-" + i).build());
                ids.put(receipt.getMessageId().toString(), body);
            }
            Map<String, CompletableFuture<SendReceipt>> pending = new TreeMap<>();
            for (int i = 0; i < COUNT; i++) {
                String body = "async-" + i;
                pending.put(body, producer.sendAsync(proxied.message(topic, body).build()));
            }
            for (var each : pending.entrySet()) {
                ids.put(each.getValue().get().getMessageId().toString(), each.getKey());
            }
            Check.same(2 * COUNT, ids.size(), "different ids");
            Map<String, String> received = new TreeMap<>();
            for (MessageView message : Proxied.take(consumer, 2 * COUNT, Proxied.HIDDEN)) {
                received.put(message.getMessageId().toString(), Proxied.text(message));
                check(message);
                consumer.ack(message);
            }
            Check.same(ids, received, "ids and bodies");
            Proxied.nothing(consumer, "after all are acknowledged");
        }
    }

    private static void check(MessageView message) {
        String body = Proxied.text(message);
        Check.same(1, message.getDeliveryAttempt(), "attempt of " + body);
        Check.that(message.getBornHost() != null && !message.getBornHost().isEmpty(), "born host");
        if (body.startsWith("sync-")) {
            String number = body.substring("sync-".length());
            Check.same("Tag" + number, message.getTag().orElse(""), "tag");
            Check.same(Set.of("key-" + number, "other"), Set.copyOf(message.getKeys()), "keys");
            Check.same("значение-" + number, message.getProperties().get("имя"), "property");
        } else {
            Check.that(message.getTag().isEmpty(), "no tag");
            Check.that(message.getKeys().isEmpty(), "no keys");
            Check.same(Map.of(), message.getProperties(), "no properties");
        }
    }

    /** Bodies up to the limit of the proxy. */
    static void large(Proxied proxied) throws Exception {
        String topic = "ProxyLarge";
        List<String> bodies = new ArrayList<>();
        try (SimpleConsumer consumer = proxied.simple(topic);
            Producer producer = proxied.producer(topic)) {
            for (int size : List.of(1, 4096, 1 << 20, LARGE_BYTES)) {
                String body = (char) ('a' + bodies.size()) + "x".repeat(size - 1);
                producer.send(proxied.message(topic, body).build());
                bodies.add(body);
            }
            List<String> received = Proxied.consume(consumer, bodies.size());
            Check.that(bodies.equals(received), "large bodies");
        }
    }

    /** A topic that is missing, and messages of another kind than the topic's. */
    static void refusals(Proxied proxied) throws Exception {
        try {
            proxied.producer("ProxyMissing").close();
            Check.that(false, "a producer of a topic that is missing");
        } catch (ClientException | IllegalStateException e) {
            Check.that(caused(e, NotFoundException.class), "not found, but: " + e);
        }
        String topic = "ProxyRefusals";
        try (Producer producer = proxied.producer(topic)) {
            producer.send(proxied.message(topic, "fits").build());
            Set<String> refused = new TreeSet<>();
            for (var each : Map.of(
                "delay", proxied.message(topic, "x")
                    .setDeliveryTimestamp(System.currentTimeMillis() + 1000),
                "fifo", proxied.message(topic, "x").setMessageGroup("one")).entrySet()) {
                try {
                    producer.send(each.getValue().build());
                } catch (ClientException | IllegalArgumentException e) {
                    refused.add(each.getKey());
                    Check.that(caused(e, BadRequestException.class)
                        || e instanceof IllegalArgumentException, "a bad request, but: " + e);
                }
            }
            Check.same(Set.of("delay", "fifo"), refused, "kinds refused");
        }
    }

    private static boolean caused(Throwable error, Class<? extends Throwable> kind) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (kind.isInstance(each)) {
                return true;
            }
        }
        return false;
    }
}
