import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A little traffic for mqadmin to look at: `Workload NAMESRV TOPIC PRODUCERS CONSUMERS`.
 *
 * Two messages go to each queue and are consumed; then it prints "ready CLIENT-ID" and stays
 * connected until its standard input ends.
 */
public final class Workload {
    private static final int MESSAGES_PER_QUEUE = 2;
    private static final int WAIT_SECONDS = 120;

    private Workload() {
    }

    /** A failure ends the process, which its clients' threads would keep. */
    public static void main(String[] args) {
        try {
            work(args);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void work(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[2]);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(15_000);
        producer.setMqClientApiTimeout(15_000);
        producer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(args[1]);
        CountDownLatch left = new CountDownLatch(queues.size() * MESSAGES_PER_QUEUE);
        DefaultMQPushConsumer consumer = consumer(args, left);
        for (MessageQueue queue : queues) {
            for (int i = 0; i < MESSAGES_PER_QUEUE; i++) {
                byte[] body = "hello".getBytes(StandardCharsets.UTF_8);
                producer.send(new Message(args[1], "tag", body), queue);
            }
        }
        if (!left.await(WAIT_SECONDS, TimeUnit.SECONDS)) {
            throw new AssertionError(left.getCount() + " messages were not consumed");
        }
        commit(consumer, args, queues);
        System.out.println("ready " + consumer.buildMQClientId());
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
        producer.shutdown();
        System.out.println("done");
    }

    private static DefaultMQPushConsumer consumer(String[] args, CountDownLatch left)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[3]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setMqClientApiTimeout(15_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** Send the offsets now: the client does so every 5 s. A listener's last batch may be open. */
    private static void commit(DefaultMQPushConsumer consumer, String[] args,
        List<MessageQueue> queues) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
        for (MessageQueue queue : queues) {
            while (consumer.getDefaultMQPushConsumerImpl().getOffsetStore()
                .readOffset(queue, ReadOffsetType.READ_FROM_MEMORY) < MESSAGES_PER_QUEUE) {
                if (System.nanoTime() > end) {
                    throw new AssertionError("not committed: " + queue);
                }
                Thread.sleep(20);
            }
        }
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
    }
}
