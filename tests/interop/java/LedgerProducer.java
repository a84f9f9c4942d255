import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;

/**
 * Sends to a group of brokers without a pause, also while the group has no leader.
 *
 * LedgerProducer NAMESRV TOPIC
 *
 * A line is "sent QUEUE OFFSET BODY" for an acknowledged message, or "failed BODY WHY" for another one,
 * whose outcome is not known. A body is sent once. It leaves at the end of its input.
 */
public final class LedgerProducer {
    private static final int TIMEOUT_MS = 5_000;
    private static final int ROUTE_MS = 500;
    private static final int PAUSE_MS = 5;
    private static final int FAILED_PAUSE_MS = 200;

    private LedgerProducer() {
    }

    public static void main(String[] args) throws Exception {
        Clients.use(args[0]);
        DefaultMQProducer producer = Clients.idleProducer("LedgerP");
        producer.setPollNameServerInterval(ROUTE_MS);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        Thread input = Clients.readInput();
        for (int number = 0; input.isAlive(); number++) {
            String body = "<0/0/" + number + ">";
            String line = send(producer, args[1], body);
            System.out.println(line);
            System.out.flush();
            TimeUnit.MILLISECONDS.sleep(line.startsWith("sent") ? PAUSE_MS : FAILED_PAUSE_MS);
        }
        producer.shutdown();
        System.exit(0);
    }

    private static String send(DefaultMQProducer producer, String topic, String body)
        throws InterruptedException {
        try {
            SendResult result = producer.send(Clients.text(topic, "t", body));
            if (result.getSendStatus() == SendStatus.SEND_OK) {
                return "sent " + result.getMessageQueue().getQueueId() + " "
                    + result.getQueueOffset() + " " + body;
            }
            return "failed " + body + " " + result.getSendStatus();
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            return "failed " + body + " " + e.getClass().getSimpleName();
        }
    }
}
