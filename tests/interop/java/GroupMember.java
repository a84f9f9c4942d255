import java.lang.reflect.Field;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a group, and one of a group that keeps order. group_member.py is the same in Python.
 *
 * GroupMember NAMESRV CONCURRENT_TOPIC ORDERLY_TOPIC WORK_MS
 *
 * Each group is named as its topic. It tells, a line each with the time in ms: "held TOPIC MS QUEUES"
 * when the queues that it has change, "begin" and "end TOPIC MS BROKER QUEUE OFFSET TRIES BODY" of each
 * message. It leaves at the end of its input.
 */
public final class GroupMember {
    private static final int POLL_MS = 50;
    private static int workMs;

    private GroupMember() {
    }

    public static void main(String[] args) throws Exception {
        Clients.use(args[0]);
        workMs = Integer.parseInt(args[3]);
        DefaultMQPushConsumer concurrent = Clients.idlePush(args[1], args[1], "*", null);
        concurrent.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            batch.forEach(message -> consume(args[1], message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQPushConsumer orderly = Clients.idlePush(args[2], args[2], "*", null);
        orderly.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
            batch.forEach(message -> consume(args[2], message));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        concurrent.start();
        orderly.start();
        tell("started", args[1]);
        String[] told = {"", ""};
        Thread input = Clients.readInput();
        while (input.isAlive()) {
            told[0] = held(concurrent, args[1], told[0]);
            told[1] = held(orderly, args[2], told[1]);
            TimeUnit.MILLISECONDS.sleep(POLL_MS);
        }
        concurrent.shutdown();
        leave(orderly);
        tell("left", args[1]);
        System.exit(0);
    }

    private static String held(DefaultMQPushConsumer consumer, String topic, String before) {
        String now = Clients.held(consumer, topic).stream()
            .map(queue -> queue.getBrokerName() + ":" + queue.getQueueId())
            .collect(Collectors.joining(","));
        if (!now.equals(before)) {
            tell("held", topic + " " + System.currentTimeMillis() + " " + now);
        }
        return now;
    }

    /** As in OrderlyMember: no renewal of the locks may follow their unlock. */
    private static void leave(DefaultMQPushConsumer consumer) throws Exception {
        Object service = consumer.getDefaultMQPushConsumerImpl().getConsumeMessageService();
        Field renewals = service.getClass().getDeclaredField("scheduledExecutorService");
        renewals.setAccessible(true);
        ((ScheduledExecutorService) renewals.get(service)).submit(consumer::shutdown).get();
    }

    private static void consume(String topic, MessageExt message) {
        String what = message.getBrokerName() + " " + message.getQueueId() + " "
            + message.getQueueOffset() + " " + message.getReconsumeTimes() + " "
            + Sink.text(message);
        tell("begin", topic + " " + System.currentTimeMillis() + " " + what);
        try {
            TimeUnit.MILLISECONDS.sleep(workMs);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        tell("end", topic + " " + System.currentTimeMillis() + " " + what);
    }

    private static synchronized void tell(String event, String what) {
        System.out.println(event + " " + what);
        System.out.flush();
    }
}
