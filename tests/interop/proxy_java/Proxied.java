import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;

/** Makes the round's clients and messages. */
final class Proxied {
    /** How long a received message is hidden: longer than a busy machine takes to acknowledge it. */
    static final Duration HIDDEN = Duration.ofSeconds(30);
    private static final Duration AWAIT = Duration.ofSeconds(1);

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;

    Proxied(String endpoints) {
        configuration = ClientConfiguration.newBuilder().setEndpoints(endpoints)
            .enableSsl(Boolean.getBoolean("round.tls"))
            .setRequestTimeout(Duration.ofSeconds(20)).build();
    }

    Producer producer(String topic) throws ClientException {
        return producer(topic, null);
    }

    Producer producer(String topic, TransactionChecker checker) throws ClientException {
        var builder = provider.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(topic);
        return (checker == null ? builder : builder.setTransactionChecker(checker)).build();
    }

    MessageBuilder message(String topic, String body) {
        return provider.newMessageBuilder().setTopic(topic)
            .setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    /** A consumer whose group has its offsets: a new one begins with what comes from now on. */
    SimpleConsumer simple(String group, String topic, FilterExpression filter) throws Exception {
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(group).setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(Map.of(topic, filter)).build();
        Check.same(List.of(), consumer.receive(1, HIDDEN), "messages of a new group");
        return consumer;
    }

    SimpleConsumer simple(String topic) throws Exception {
        return simple(topic, topic, FilterExpression.SUB_ALL);
    }

    /** A consumer, once its group has its offsets. */
    PushConsumer push(String topic, int threads, MessageListener listener) throws Exception {
        simple(topic).close();
        return provider.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(topic).setConsumptionThreadCount(threads)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(listener).build();
    }

    static String text(MessageView message) {
        ByteBuffer body = message.getBody();
        return StandardCharsets.UTF_8.decode(body).toString();
    }

    /** Receive until there are so many messages. */
    static List<MessageView> take(SimpleConsumer consumer, int count, Duration hidden)
        throws Exception {
        List<MessageView> taken = new ArrayList<>();
        Check.until(count + " messages come", () -> {
            taken.addAll(consumer.receive(32, hidden));
            return taken.size() >= count;
        });
        Check.same(count, taken.size(), "messages received");
        return taken;
    }

    /** The bodies of so many messages, sorted, which are acknowledged. */
    static List<String> consume(SimpleConsumer consumer, int count) throws Exception {
        List<String> bodies = new ArrayList<>();
        for (MessageView message : take(consumer, count, HIDDEN)) {
            consumer.ack(message);
            bodies.add(text(message));
        }
        return bodies.stream().sorted().toList();
    }

    /** Check that a consumer is given nothing during one wait. */
    static void nothing(SimpleConsumer consumer, String when) throws Exception {
        Check.same(List.of(), consumer.receive(32, HIDDEN).stream().map(Proxied::text).toList(),
            "messages " + when);
    }
}
