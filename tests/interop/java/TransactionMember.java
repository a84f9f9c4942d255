import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer of a group that leaves its transactions open, and answers for those of others.
 *
 * TransactionMember NAMESRV TOPIC GROUP NAME COUNT
 *
 * It sends COUNT messages NAME-0, NAME-1, ...; asked, it commits even ones and rolls odd ones back.
 * It tells "sent", and "asked BODY" of each first question, and ends at the end of its input.
 */
public final class TransactionMember {
    private TransactionMember() {
    }

    private static final class Answers implements TransactionListener {
        private final Map<String, Boolean> asked = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = Sink.text(message);
            if (asked.put(body, true) == null) {
                tell("asked " + body);
            }
            int number = Integer.parseInt(body.substring(body.indexOf('-') + 1));
            return number % 2 == 0
                ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    public static void main(String[] args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(args[2]);
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName(Clients.instance());
        producer.setMqClientApiTimeout(Clients.SEND_TIMEOUT_MS);
        producer.setHeartbeatBrokerInterval(Clients.HEARTBEAT_MS);
        producer.setSendMsgTimeout(Clients.SEND_TIMEOUT_MS);
        producer.setTransactionListener(new Answers());
        producer.start();
        for (int i = 0; i < Integer.parseInt(args[4]); i++) {
            Check.same(SendStatus.SEND_OK, producer.sendMessageInTransaction(
                Clients.text(args[1], "T", args[3] + "-" + i), null).getSendStatus(), "status");
        }
        tell("sent");
        while (System.in.read() >= 0) {
            continue;
        }
        producer.shutdown();
        System.exit(0);
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
