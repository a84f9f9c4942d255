import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Users of a proxy with ACL 2.0: each sends a message and receives what there is. A line tells the
 * outcome of each, "0 send ok", "0 receive got BODY" or the text of the refusal.
 *
 * <p>Usage: ProxyUsers ENDPOINTS TOPIC GROUP USER=PASSWORD... A USER of "-" does not sign. What is
 * told of an attempt begins with the number of the user among them.
 */
public final class ProxyUsers {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    private ProxyUsers() {
    }

    public static void main(String[] args) {
        for (int number = 3; number < args.length; number++) {
            String[] keys = args[number].split("=", 2);
            String who = number - 3 + " ";
            var builder = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
                .setRequestTimeout(Duration.ofSeconds(20));
            if (!keys[0].equals("-")) {
                builder.setCredentialProvider(
                    new StaticSessionCredentialsProvider(keys[0], keys[1]));
            }
            tell(who + "send", () -> send(builder.build(), args[1], keys[0]));
            tell(who + "receive", () -> receive(builder.build(), args[1], args[2]));
        }
        // Some of the client's threads are no daemons.
        Runtime.getRuntime().halt(0);
    }

    /** What a user tries; it returns the text of the outcome. */
    interface Attempt {
        String outcome() throws Exception;
    }

    private static void tell(String what, Attempt attempt) {
        String text;
        try {
            text = attempt.outcome();
        } catch (Throwable e) {
            Throwable cause = e;
            while (!(cause instanceof ClientException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            text = "refused " + cause.getMessage();
        }
        System.out.println(what + " " + text.replace('\n', ' '));
    }

    private static String send(ClientConfiguration configuration, String topic, String body)
        throws Exception {
        try (Producer producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration).setTopics(topic).setMaxAttempts(1).build()) {
            producer.send(PROVIDER.newMessageBuilder().setTopic(topic)
                .setBody(body.getBytes(StandardCharsets.UTF_8)).build());
            return "ok";
        }
    }

    private static String receive(ClientConfiguration configuration, String topic, String group)
        throws Exception {
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(1))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build()) {
            StringBuilder bodies = new StringBuilder("got");
            for (int empty = 0; empty < 4;) {
                List<MessageView> messages = consumer.receive(16, Duration.ofSeconds(30));
                for (MessageView message : messages) {
                    bodies.append(' ').append(StandardCharsets.UTF_8.decode(message.getBody()));
                    consumer.ack(message);
                }
                empty = messages.isEmpty() ? empty + 1 : 0;
            }
            return bodies.toString();
        }
    }
}
