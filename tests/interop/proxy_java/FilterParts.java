import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Subscriptions to a part of a topic. */
final class FilterParts {
    private static final int COUNT = 12;

    private FilterParts() {
    }

    private static List<String> send(Proxied proxied, String topic) throws ClientException {
        List<String> bodies = new ArrayList<>();
        try (Producer producer = proxied.producer(topic)) {
            for (int i = 0; i < COUNT; i++) {
                String tag = "Tag" + (char) ('A' + i % 3);
                String body = String.format("%02d", i);
                producer.send(proxied.message(topic, body).setTag(tag)
                    .addProperty("price", Integer.toString(i))
                    .addProperty("region", i % 2 == 0 ? "eu" : "as").build());
                bodies.add(body);
            }
        } catch (java.io.IOException e) {
            throw new AssertionError("the producer cannot be closed", e);
        }
        return bodies;
    }

    /** Two tags of three, beside a group that takes all. */
    static void tags(Proxied proxied) throws Exception {
        String topic = "ProxyTags";
        try (SimpleConsumer some = proxied.simple("ProxyTagsSome", topic,
            new FilterExpression("TagA || TagC", FilterExpressionType.TAG));
            SimpleConsumer all = proxied.simple(topic)) {
            List<String> sent = send(proxied, topic);
            List<String> expected = sent.stream()
                .filter(body -> Integer.parseInt(body) % 3 != 1).toList();
            Check.same(expected, Proxied.consume(some, expected.size()), "of two tags");
            Check.same(sent, Proxied.consume(all, sent.size()), "of all tags");
            Proxied.nothing(some, "of the third tag");
        }
    }

    /** An expression over properties and the tag. */
    static void sql(Proxied proxied) throws Exception {
        String topic = "ProxySql";
        String expression = "(price BETWEEN 3 AND 9 AND region = 'eu') OR TAGS IN ('TagC')";
        try (SimpleConsumer consumer = proxied.simple(topic, topic,
            new FilterExpression(expression, FilterExpressionType.SQL92))) {
            List<String> expected = send(proxied, topic).stream().filter(body -> {
                int i = Integer.parseInt(body);
                return i >= 3 && i <= 9 && i % 2 == 0 || i % 3 == 2;
            }).toList();
            Check.same(expected, Proxied.consume(consumer, expected.size()), "of the expression");
            Proxied.nothing(consumer, "of others");
        }
    }
}
