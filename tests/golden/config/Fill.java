// Makes a broker write its config files: ten messages, one of them delayed, consumed by one group.
// Run against a fresh broker of the release, which is then stopped:  peer.py java Fill.java ADDR
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public class Fill {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("P");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        for (int i = 0; i < 9; i++) {
            producer.send(new Message("T", "tag", "k" + i, ("x" + i).getBytes()));
        }
        Message delayed = new Message("T", "tag", "d", "delayed".getBytes());
        delayed.setDelayTimeLevel(3);
        producer.send(delayed);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("G");
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("T", "*");
        CountDownLatch left = new CountDownLatch(10);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await();
        consumer.shutdown();
        producer.shutdown();
    }
}
