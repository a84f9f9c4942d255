import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends more than a broker takes, without waiting for answers, and tells what came of it: a line for
 * each code with the first words of its remark and how often it came. Then it sends one by one.
 *
 * <p>Arguments: name server, topic, messages at once, messages one by one, broker's name.
 */
public final class FlowRound {
    private FlowRound() {
    }

    public static void main(String[] arguments) throws Exception {
        Clients.use(arguments[0]);
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        DefaultMQProducer producer = Clients.idleProducer("flow");
        producer.setSendMsgTimeout((int) Check.WAIT_MS);
        producer.start();
        MessageQueue queue = new MessageQueue(topic, arguments[4], 0);
        // The topic is made by the first message.
        producer.send(new Message(topic, new byte[] {'0'}));
        System.out.println("started");
        ConcurrentSkipListMap<String, AtomicInteger> results = new ConcurrentSkipListMap<>();
        CountDownLatch open = new CountDownLatch(count);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                count("0 " + result.getSendStatus());
            }

            @Override
            public void onException(Throwable error) {
                if (error instanceof MQBrokerException) {
                    MQBrokerException refused = (MQBrokerException) error;
                    String remark = refused.getErrorMessage();
                    count(refused.getResponseCode() + " " + remark.substring(0, remark.indexOf(']') + 1));
                } else {
                    count("-1 " + error);
                }
            }

            private void count(String result) {
                results.computeIfAbsent(result, key -> new AtomicInteger()).incrementAndGet();
                open.countDown();
            }
        };
        byte[] body = new byte[512];
        for (int number = 0; number < count; number++) {
            producer.send(new Message(topic, body), queue, callback);
        }
        if (!open.await(2 * Check.WAIT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(open.getCount() + " were not answered");
        }
        results.forEach((result, times) -> System.out.println("result " + times + " " + result));
        for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
            System.out.println("after " + producer.send(new Message(topic, body)).getSendStatus());
        }
        producer.shutdown();
        System.out.println("done");
        System.exit(0);
    }
}
