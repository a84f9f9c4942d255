import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Batches in a batch topic and messages in light queues: java ... BatchRound NAMESRV BROKER_NAME. */
final class BatchRound {
    private static final String BATCHES = "RoundBatches";
    private static final String PARENT = "RoundParent";
    private static final String LIGHT = "%LMQ%round";
    private final DefaultMQProducer producer = Clients.producer("BatchRoundP");
    private final DefaultMQPullConsumer consumer = Clients.idlePull("BatchRoundC");
    private final String brokerName;

    private BatchRound(String brokerName) throws Exception {
        this.brokerName = brokerName;
        consumer.setRegisterTopics(new HashSet<>(Set.of(BATCHES, PARENT)));
        consumer.start();
    }

    public static void main(String[] args) throws Exception {
        Clients.use(args[0]);
        BatchRound round = new BatchRound(args[1]);
        round.batches();
        round.light();
        round.consumer.shutdown();
        round.producer.shutdown();
        System.out.println("ok " + Check.count() + " checks");
        System.exit(0);
    }

    /** What is sent as one comes back as many, each with an offset of its own. */
    private void batches() throws Exception {
        MessageQueue queue = new MessageQueue(BATCHES, brokerName, 0);
        List<String> bodies = new ArrayList<>();
        long first = -1;
        for (int size : new int[] {3, 1, 5}) {
            List<Message> batch = new ArrayList<>();
            for (int index = 0; index < size; index++) {
                bodies.add("body " + bodies.size());
                batch.add(new Message(BATCHES, "T", "key" + bodies.size(),
                    bodies.get(bodies.size() - 1).getBytes(StandardCharsets.UTF_8)));
            }
            SendResult sent = Clients.sent(producer.send(batch, queue));
            first = first < 0 ? sent.getQueueOffset() : first;
            Check.that(!sent.getMsgId().contains(","), "an inner batch has one id");
            Check.same(first + bodies.size() - size, sent.getQueueOffset(), "offset of a batch");
        }
        long end = first + bodies.size();
        Check.same(end, consumer.maxOffset(queue), "the queue's end");
        for (long offset = first; offset < end; offset++) {
            List<MessageExt> found = pull(queue, offset);
            MessageExt last = found.get(found.size() - 1);
            Check.same(end - 1, last.getQueueOffset(), "the last message");
            for (MessageExt message : found) {
                Check.same(bodies.get((int) (message.getQueueOffset() - first)),
                    new String(message.getBody(), StandardCharsets.UTF_8), "body of a message");
                Check.same("T", message.getTags(), "tag of a message");
            }
            Check.that(found.get(0).getQueueOffset() <= offset, "a batch comes whole");
        }
    }

    /** One message, read from the light queues it names. */
    private void light() throws Exception {
        MessageQueue queue = new MessageQueue(LIGHT, brokerName, 0);
        for (int index = 0; index < 3; index++) {
            Message message = new Message(PARENT, ("light " + index).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("INNER_MULTI_DISPATCH", LIGHT + ",%LMQ%other");
            Clients.sent(producer.send(message));
        }
        List<MessageExt> found = pull(queue, 0);
        Check.same(3, found.size(), "messages of a light queue");
        for (int index = 0; index < 3; index++) {
            Check.same("light " + index, new String(found.get(index).getBody(),
                StandardCharsets.UTF_8), "body in a light queue");
            Check.same(index + "," + index, found.get(index).getProperty("INNER_MULTI_QUEUE_OFFSET"),
                "its offsets");
        }
        consumer.updateConsumeOffset(queue, 2);
        Check.same(3L, consumer.maxOffset(queue), "a light queue's end");
    }

    @SuppressWarnings("deprecation")
    private List<MessageExt> pull(MessageQueue queue, long offset) throws Exception {
        PullResult result = consumer.pull(queue, "*", offset, 32);
        Check.same(PullStatus.FOUND, result.getPullStatus(), "a pull at " + offset);
        return result.getMsgFoundList();
    }
}
