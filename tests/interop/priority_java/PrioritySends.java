import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends messages of several priorities with the client of 5.5.0; prints the queue of each. */
public class PrioritySends {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("priority-producer");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(30000);
        producer.start();
        StringBuilder queues = new StringBuilder("queues");
        for (int number = 0; number < 10; number++) {
            Message message = new Message(arguments[1], ("j" + number).getBytes());
            message.setPriority(number % 5);
            SendResult result = producer.send(message);
            queues.append(' ').append(result.getMessageQueue().getQueueId());
        }
        producer.shutdown();
        System.out.println(queues);
    }
}
