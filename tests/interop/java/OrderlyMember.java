import java.lang.reflect.Field;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a group that keeps order; it tells when it begins and ends with each message.
 *
 * OrderlyMember NAMESRV TOPIC GROUP SUSPEND_EVERY
 *
 * Of SUSPEND_EVERY messages of a queue one is suspended the first time; 0: none. A line is "begin" or
 * the result, the time in ms, queue, offset, how often it was tried before, body. It leaves the group
 * at the end of its input.
 */
public final class OrderlyMember {
    private static final int WORK_MS = 10;
    private static final int SUSPEND_MS = 50;

    private OrderlyMember() {
    }

    public static void main(String[] args) throws Exception {
        Clients.use(args[0]);
        int suspendEvery = Integer.parseInt(args[3]);
        DefaultMQPushConsumer consumer = Clients.idlePush(args[2], args[1], "*", null);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
            Check.same(1, batch.size(), "messages at a time");
            return consume(batch.get(0), context, suspendEvery);
        });
        consumer.start();
        tell("started", "");
        while (System.in.read() >= 0) {
            continue;
        }
        leave(consumer);
        tell("left", "");
        System.exit(0);
    }

    /**
     * Shuts the consumer down on the thread that renews its locks. Elsewhere a renewal may be under
     * way and lock the queues again behind their unlock.
     */
    private static void leave(DefaultMQPushConsumer consumer) throws Exception {
        Object service = consumer.getDefaultMQPushConsumerImpl().getConsumeMessageService();
        Field renewals = service.getClass().getDeclaredField("scheduledExecutorService");
        renewals.setAccessible(true);
        ((ScheduledExecutorService) renewals.get(service)).submit(consumer::shutdown).get();
    }

    private static ConsumeOrderlyStatus consume(
        MessageExt message, ConsumeOrderlyContext context, int suspendEvery) {
        String what = message.getQueueId() + " " + message.getQueueOffset() + " "
            + message.getReconsumeTimes() + " " + Sink.text(message);
        tell("begin", what);
        try {
            TimeUnit.MILLISECONDS.sleep(WORK_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        if (suspendEvery > 0 && message.getQueueOffset() % suspendEvery == 0
            && message.getReconsumeTimes() == 0) {
            context.setSuspendCurrentQueueTimeMillis(SUSPEND_MS);
            tell("suspend", what);
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }
        tell("success", what);
        return ConsumeOrderlyStatus.SUCCESS;
    }

    private static synchronized void tell(String event, String what) {
        System.out.println(event + " " + System.currentTimeMillis() + " " + what);
        System.out.flush();
    }
}
