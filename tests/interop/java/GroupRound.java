import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Members of one group: sharing queues, taking over, broadcast, and order within a queue. */
final class GroupRound {
    private final String id;
    private final DefaultMQProducer producer;

    GroupRound(String id, DefaultMQProducer producer) {
        this.id = id;
        this.producer = producer;
    }

    void run() throws Exception {
        sharing();
        broadcast();
        orderly();
    }

    private String createTopic(String name) throws Exception {
        String topic = name + "-" + id;
        Clients.sendTexts(producer, topic, "T", "seed", 1);
        Check.until("route of " + topic,
            () -> producer.fetchPublishMessageQueues(topic).size() == 4);
        return topic;
    }

    private void sharing() throws Exception {
        String topic = createTopic("SpineShare");
        Sink first = new Sink();
        Sink second = new Sink();
        DefaultMQPushConsumer one = Clients.push("SpineShareG-" + topic, topic, "*", first);
        Check.until("the only member holds all queues", () -> Clients.held(one, topic).size() == 4);
        Check.until("the seed arrives", () -> first.bodySet().contains("seed-0"));
        DefaultMQPushConsumer two = Clients.push("SpineShareG-" + topic, topic, "*", second);
        Check.until("two members hold two queues each", () ->
            Clients.held(one, topic).size() == 2 && Clients.held(two, topic).size() == 2);
        Set<MessageQueue> all = new TreeSet<>(Clients.held(one, topic));
        all.addAll(Clients.held(two, topic));
        Check.same(4, all.size(), "no queue is held twice");
        eachToItsHolder(topic, one, first, two, second);
        takeOver(topic, one, first, two);
        one.shutdown();
    }

    private void eachToItsHolder(String topic, DefaultMQPushConsumer one, Sink first,
        DefaultMQPushConsumer two, Sink second) throws Exception {
        Set<String> bodies = new TreeSet<>(Clients.sendTexts(producer, topic, "T", "share", 16));
        Check.until("both sinks together get all", () -> {
            Set<String> got = first.bodySet();
            got.addAll(second.bodySet());
            return got.containsAll(bodies);
        });
        List<MessageExt> ofOne = shared(first);
        List<MessageExt> ofTwo = shared(second);
        Check.same(16, ofOne.size() + ofTwo.size(), "each message goes to one member");
        holds(Clients.held(one, topic), ofOne);
        holds(Clients.held(two, topic), ofTwo);
    }

    /** Without the seed, which may come to both: a queue can change hands before its commit does. */
    private static List<MessageExt> shared(Sink sink) {
        List<MessageExt> shared = new ArrayList<>(sink.messages);
        shared.removeIf(message -> !Sink.text(message).startsWith("share"));
        return shared;
    }

    private static void holds(Set<MessageQueue> queues, List<MessageExt> messages) {
        Check.that(!messages.isEmpty(), "both members get messages");
        for (MessageExt message : messages) {
            Check.that(queues.stream().anyMatch(q -> q.getQueueId() == message.getQueueId()),
                "a member gets messages of its own queues only");
        }
    }

    private void takeOver(String topic, DefaultMQPushConsumer one, Sink first,
        DefaultMQPushConsumer two) throws Exception {
        two.shutdown();
        Check.until("the member that stays takes over", () -> Clients.held(one, topic).size() == 4);
        Set<String> bodies = new TreeSet<>(Clients.sendTexts(producer, topic, "T", "alone", 12));
        Check.until("it gets everything", () -> first.bodySet().containsAll(bodies));
    }

    private void broadcast() throws Exception {
        String topic = createTopic("SpineCast");
        List<Sink> sinks = new ArrayList<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Sink sink = new Sink();
            DefaultMQPushConsumer consumer =
                Clients.idlePush("SpineCastG-" + topic, topic, "*", null);
            // The enumeration's package differs between 4.x and 5.x, so it is never named here.
            consumer.setMessageModel(Enum.valueOf(
                consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
            consumer.registerMessageListener(sink);
            consumer.start();
            sinks.add(sink);
            consumers.add(consumer);
        }
        for (DefaultMQPushConsumer consumer : consumers) {
            Check.until("a broadcast member holds all queues",
                () -> Clients.held(consumer, topic).size() == 4);
        }
        List<String> bodies = Clients.sendTexts(producer, topic, "T", "cast", 8);
        for (Sink sink : sinks) {
            Check.until("every member gets every message",
                () -> sink.bodySet().containsAll(bodies));
            Check.same(bodies.size(), (int) sink.bodies().stream()
                .filter(body -> body.startsWith("cast")).count(), "each once");
        }
        consumers.forEach(DefaultMQPushConsumer::shutdown);
    }

    private void orderly() throws Exception {
        String topic = createTopic("SpineOrder");
        List<String> got = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer =
            Clients.idlePush("SpineOrderG-" + topic, topic, "ordered", null);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            got.addAll(Sink.bodies(messages));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        List<String> bodies = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            String body = "order-" + i;
            bodies.add(body);
            Clients.sent(producer.send(Clients.text(topic, "ordered", body),
                (queues, m, arg) -> queues.get(1), null));
        }
        Check.until("the ordered messages arrive", () -> got.size() >= bodies.size());
        Check.same(bodies, got, "in the order of the queue");
        consumer.shutdown();
    }
}
