import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;

/** One topic on two brokers of one cluster, whoever made them: sent to and consumed from both. */
final class ClusterRound {
    private static final int COUNT = 64;
    private final String topic;
    private final String group;
    private final DefaultMQProducer producer;

    ClusterRound(String id, DefaultMQProducer producer) {
        this.topic = "SpineCluster-" + id;
        this.group = "SpineClusterG-" + id;
        this.producer = producer;
    }

    void run() throws Exception {
        // The template's route names both brokers once both have registered.
        Check.until("both brokers are known",
            () -> brokers(producer.fetchPublishMessageQueues("TBW102")).size() == 2);
        Set<String> bodies = new TreeSet<>();
        Set<String> used = new TreeSet<>();
        for (int i = 0; i < COUNT; i++) {
            String body = "cluster-" + i;
            SendResult result = Clients.sent(producer.send(Clients.text(topic, "TagA", body)));
            used.add(result.getMessageQueue().getBrokerName());
            bodies.add(body);
        }
        Check.same(2, used.size(), "brokers sent to: " + used);
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = Clients.push(group, topic, "*", sink);
        Check.until("everything arrives", () -> sink.bodySet().containsAll(bodies));
        Check.same(bodies, sink.bodySet(), "bodies");
        Set<String> from = new TreeSet<>();
        sink.messages.forEach(message -> from.add(message.getBrokerName()));
        Check.same(used, from, "brokers consumed from");
        consumer.shutdown();
    }

    private static Set<String> brokers(
        List<org.apache.rocketmq.common.message.MessageQueue> queues) {
        Set<String> names = new TreeSet<>();
        queues.forEach(queue -> names.add(queue.getBrokerName()));
        return names;
    }
}
