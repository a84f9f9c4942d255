import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a consumer of one topic, by TLS if its system properties say so.
 *
 * TlsMember NAMESRV TOPIC GROUP
 *
 * It sends a message every few milliseconds; each is more than one TLS record. Lines: "refused" when
 * the first cannot be sent, and it ends; "sent" and "consumed" with a message's number; "failed" for
 * a send that fails later. It leaves at the end of its input.
 */
public final class TlsMember {
    private static final int PAUSE_MS = 20;
    private static final int SIZE = 40_000;
    private static final int TIMEOUT_MS = Clients.SEND_TIMEOUT_MS;
    private static volatile boolean ends;

    private TlsMember() {
    }

    public static void main(String[] args) throws Exception {
        Clients.use(args[0]);
        DefaultMQProducer producer = Clients.idleProducer(args[2] + "-producer");
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            producer.send(message(args[1], 0));
        } catch (Exception e) {
            tell("refused " + String.valueOf(e.getMessage()).split("\n")[0]);
            System.exit(0);
        }
        tell("sent 0");
        DefaultMQPushConsumer consumer = Clients.idlePush(args[2], args[1], "*", null);
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt each : batch) {
                Check.same(SIZE, each.getBody().length, "bytes of a message");
                tell("consumed " + Sink.text(each).trim());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Thread input = new Thread(TlsMember::waitForEnd);
        input.setDaemon(true);
        input.start();
        for (int number = 1; !ends; number++) {
            try {
                producer.send(message(args[1], number));
                tell("sent " + number);
            } catch (Exception e) {
                tell("failed " + e);
            }
            TimeUnit.MILLISECONDS.sleep(PAUSE_MS);
        }
        System.exit(0);
    }

    private static void waitForEnd() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (java.io.IOException e) {
            tell("failed " + e);
        }
        ends = true;
    }

    private static Message message(String topic, int number) {
        String text = String.format("%-" + SIZE + "d", number);
        return new Message(topic, text.getBytes(StandardCharsets.US_ASCII));
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
    }
}
