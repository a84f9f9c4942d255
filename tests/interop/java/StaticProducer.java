import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends to all queues of a static topic in turn; tells the queues, and where each message went.
 *
 * StaticProducer NAMESRV TOPIC GROUP PREFIX COUNT
 *
 * A line is "queue" with broker name and queue, of each, or "sent" with queue, offset and body. Each
 * queue gets COUNT messages, whose bodies are PREFIX-QUEUE-NUMBER. It is a new client with a new
 * route, as of a producer that is started after a change.
 */
public final class StaticProducer {
    private StaticProducer() {
    }

    public static void main(String[] args) throws Exception {
        Clients.use(args[0]);
        String topic = args[1];
        int count = Integer.parseInt(args[4]);
        DefaultMQProducer producer = Clients.producer(args[2]);
        List<MessageQueue> queues = new ArrayList<>(producer.fetchPublishMessageQueues(topic));
        for (MessageQueue queue : queues) {
            System.out.println("queue " + queue.getBrokerName() + " " + queue.getQueueId());
        }
        for (int number = 0; number < count; number++) {
            for (MessageQueue queue : queues) {
                String body = args[3] + "-" + queue.getQueueId() + "-" + number;
                SendResult result = Clients.sent(
                    producer.send(Clients.text(topic, "t", body), queue));
                System.out.println("sent " + result.getMessageQueue().getQueueId() + " "
                    + result.getQueueOffset() + " " + body);
            }
        }
        for (MessageQueue queue : queues) {
            System.out.println("bounds " + queue.getQueueId() + " " + producer.minOffset(queue)
                + " " + producer.maxOffset(queue));
        }
        producer.shutdown();
        System.exit(0);
    }
}
