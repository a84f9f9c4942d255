import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;

/**
 * A member of a group that pops, once an administrator set the group's mode.
 *
 * PopMember NAMESRV TOPIC GROUP INVISIBLE_MS
 *
 * It tells "body TEXT TRIES" of each message that it was given, and leaves at the end of its input.
 */
public final class PopMember {
    private PopMember() {
    }

    public static void main(String[] args) throws Exception {
        Clients.use(args[0]);
        DefaultMQPushConsumer consumer = Clients.idlePush(args[2], args[1], "*", null);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(Long.parseLong(args[3]));
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            batch.forEach(message ->
                tell("body " + Sink.text(message) + " " + message.getReconsumeTimes()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        tell("started");
        while (System.in.read() >= 0) {
            continue;
        }
        // Acknowledgements are sent without a wait for their answers.
        TimeUnit.MILLISECONDS.sleep(500);
        consumer.shutdown();
        tell("left");
        System.exit(0);
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
