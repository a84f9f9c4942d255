import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Messages that are delivered later, or once their transaction is committed. */
final class TimeParts {
    private static final long DELAY_MS = 4000;

    private TimeParts() {
    }

    /** A message of a set time comes then, not before. */
    static void delay(Proxied proxied) throws Exception {
        String topic = "ProxyDelay";
        try (SimpleConsumer consumer = proxied.simple(topic);
            Producer producer = proxied.producer(topic)) {
            long time = System.currentTimeMillis() + DELAY_MS;
            SendReceipt receipt = producer.send(
                proxied.message(topic, "later").setTag("T").setDeliveryTimestamp(time).build());
            MessageView message = Proxied.take(consumer, 1, Proxied.HIDDEN).get(0);
            long early = time - System.currentTimeMillis();
            Check.that(early <= 1000, "a message comes " + early + " ms early");
            Check.same("later", Proxied.text(message), "delayed body");
            Check.same(receipt.getMessageId(), message.getMessageId(), "delayed id");
            Check.same(time, message.getDeliveryTimestamp().orElse(0L), "delivery time");
            consumer.ack(message);
        }
    }

    /** A message that is taken back does not come; one of the same time does. */
    static void recall(Proxied proxied) throws Exception {
        String topic = "ProxyRecall";
        try (SimpleConsumer consumer = proxied.simple(topic);
            Producer producer = proxied.producer(topic)) {
            long time = System.currentTimeMillis() + 2 * DELAY_MS;
            SendReceipt recalled = producer.send(
                proxied.message(topic, "recalled").setDeliveryTimestamp(time).build());
            SendReceipt kept = producer.send(
                proxied.message(topic, "kept").setDeliveryTimestamp(time).build());
            Check.that(!recalled.getRecallHandle().isEmpty(), "a recall handle");
            Check.same(recalled.getMessageId(),
                producer.recallMessage(topic, recalled.getRecallHandle()).getMessageId(),
                "id of the message recalled");
            MessageView message = Proxied.take(consumer, 1, Proxied.HIDDEN).get(0);
            Check.same("kept", Proxied.text(message), "the message that was not recalled");
            consumer.ack(message);
            Proxied.nothing(consumer, "after the time of the recalled one");
            try {
                producer.recallMessage(topic, kept.getRecallHandle());
                Check.that(false, "a delivered message is recalled");
            } catch (ClientException e) {
                Check.that(true, "a delivered message cannot be recalled");
            }
        }
    }

    /** Transactions that are committed, rolled back, and left to the check of their producer. */
    static void transactions(Proxied proxied) throws Exception {
        String topic = "ProxyTransactions";
        Set<String> checked = ConcurrentHashMap.newKeySet();
        try (SimpleConsumer consumer = proxied.simple(topic);
            Producer producer = proxied.producer(topic, message -> {
                String body = Proxied.text(message);
                return !checked.add(body) && body.equals("checked-commit")
                    ? TransactionResolution.COMMIT
                    : body.equals("checked-rollback") ? TransactionResolution.ROLLBACK
                    : TransactionResolution.UNKNOWN;
            })) {
            begin(proxied, producer, topic, "committed").commit();
            begin(proxied, producer, topic, "rolled-back").rollback();
            begin(proxied, producer, topic, "checked-rollback");
            begin(proxied, producer, topic, "checked-commit");
            // A check whose answer is late is made again: a message may be committed twice.
            Set<String> bodies = new TreeSet<>();
            Check.until("both come", () -> receive(consumer, bodies).size() == 2);
            Check.until("the producer is asked for the other", () ->
                checked.contains("checked-rollback"));
            Check.that(checked.contains("checked-commit"), "the producer is asked");
            Check.same(Set.of("committed", "checked-commit"), receive(consumer, bodies),
                "committed");
        }
    }

    private static Set<String> receive(SimpleConsumer consumer, Set<String> bodies)
        throws ClientException {
        for (MessageView message : consumer.receive(32, Proxied.HIDDEN)) {
            consumer.ack(message);
            bodies.add(Proxied.text(message));
        }
        return bodies;
    }

    private static Transaction begin(Proxied proxied, Producer producer, String topic, String body)
        throws ClientException {
        Transaction transaction = producer.beginTransaction();
        producer.send(proxied.message(topic, body).setTag("T").build(), transaction);
        return transaction;
    }
}
