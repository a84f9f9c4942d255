import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages that are delivered later, and tells when each is due: "due BODY MS".
 *
 * TimedSend NAMESRV TOPIC COUNT
 */
public final class TimedSend {
    private static final long DELAY_MS = 3000;

    private TimedSend() {
    }

    public static void main(String[] args) throws Exception {
        Clients.use(args[0]);
        DefaultMQProducer producer = Clients.producer("TimedSendP");
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            Message message = Clients.text(args[1], "T", "java-" + i);
            long due = System.currentTimeMillis() + DELAY_MS;
            if (i % 2 == 0) {
                message.setDelayTimeMs(DELAY_MS);
            } else {
                message.setDeliverTimeMs(due);
            }
            Clients.sent(producer.send(message));
            System.out.println("due java-" + i + " " + due);
            Thread.sleep(100);
        }
        producer.shutdown();
        System.exit(0);
    }
}
