import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The conversation whose frames are captured: `GoldenClient NAMESRV TOPIC all|send`.
 *
 * One client does each thing once, so that the first frame of a code is the one to keep.
 */
public final class GoldenClient {
    private static final long WAIT_S = 30;
    private final String namesrv;
    private final String topic;

    private GoldenClient(String namesrv, String topic) {
        this.namesrv = namesrv;
        this.topic = topic;
    }

    public static void main(String[] args) {
        int status = 0;
        try {
            run(args);
            System.out.println("done");
        } catch (Exception e) {
            e.printStackTrace(System.out);
            status = 1;
        }
        System.out.flush();
        Runtime.getRuntime().halt(status);
    }

    private static void run(String[] args) throws Exception {
        GoldenClient client = new GoldenClient(args[0], args[1]);
        client.send(args[2].equals("all"));
        if (args[2].equals("all")) {
            client.consume();
            client.consumeInOrder();
        }
    }

    private Message message(String body) {
        Message message = new Message(topic, "TagA", "key1 ключ2", bytes(body));
        message.putUserProperty("имя", "значение ☃");
        message.setFlag(5);
        return message;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private void send(boolean all) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("GoldenP");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(15_000);
        producer.start();
        producer.send(message("hello"));
        if (all) {
            producer.sendOneway(message("hello one way"));
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                batch.add(message("batch " + i));
            }
            producer.send(batch);
            producer.send(message("a body that compresses well, ".repeat(300)));
            MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(0);
            producer.maxOffset(queue);
            producer.minOffset(queue);
            producer.searchOffset(queue, 0);
            producer.earliestMsgStoreTime(queue);
            waitFor(() -> !producer.queryMessage(topic, "key1", 32, 0, Long.MAX_VALUE)
                .getMessageList().isEmpty());
        }
        producer.shutdown();
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void waitFor(Condition condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (System.nanoTime() < end) {
            try {
                if (condition.holds()) {
                    return;
                }
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                // The index of the message is not written yet.
            }
            Thread.sleep(20);
        }
        throw new IllegalStateException("not within " + WAIT_S + " s");
    }

    private DefaultMQPushConsumer consumer(String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "TagA || TagB");
        return consumer;
    }

    private void consume() throws Exception {
        DefaultMQPushConsumer consumer = consumer("GoldenG");
        CountDownLatch seven = new CountDownLatch(7);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean again = new String(messages.get(0).getBody(), StandardCharsets.UTF_8)
                .equals("hello") && messages.get(0).getReconsumeTimes() == 0;
            context.setDelayLevelWhenNextConsume(1);
            seven.countDown();
            return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        reached(seven);
        consumer.shutdown();
    }

    private void consumeInOrder() throws Exception {
        DefaultMQPushConsumer consumer = consumer("GoldenOrderG");
        CountDownLatch six = new CountDownLatch(6);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            six.countDown();
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        reached(six);
        consumer.shutdown();
    }

    private static void reached(CountDownLatch latch) throws Exception {
        if (!latch.await(WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(latch.getCount() + " messages are missing");
        }
    }
}
