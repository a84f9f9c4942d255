import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transactions. A body says what becomes of its message: the word before the first dash is the local
 * transaction's answer, the second word the answer to a question. The broker checks every other
 * second and asks three times at most (settings of the test).
 */
final class TransactionRound {
    private static final int CHECKS_MOST = 3;
    private static final String GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC";
    private final String id;
    private final String topic;
    private final DefaultMQProducer plain;
    private final Sink sink = new Sink();
    private final Sink givenUp = new Sink();

    /** Answers as the bodies say, and remembers what it was asked. */
    private static final class Answers implements TransactionListener {
        final Map<String, List<MessageExt>> asked = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            String word = new String(message.getBody()).split("-")[0];
            if (word.equals("throws")) {
                throw new IllegalStateException("thrown by the round");
            }
            return state(word);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = Sink.text(message);
            asked.computeIfAbsent(body, key -> new CopyOnWriteArrayList<>()).add(message);
            return state(body.split("-")[1]);
        }

        private static LocalTransactionState state(String word) {
            switch (word) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        int times(String body) {
            return asked.getOrDefault(body, List.of()).size();
        }
    }

    TransactionRound(String id, DefaultMQProducer plain) {
        this.id = id;
        this.topic = "SpineTransaction-" + id;
        this.plain = plain;
    }

    void run() throws Exception {
        Clients.sendTexts(plain, topic, "T", "seed", 1);
        DefaultMQPushConsumer consumer = Clients.push("SpineTranG-" + id, topic, "*", sink);
        DefaultMQPushConsumer last = Clients.push("SpineGivenUpG-" + id, GIVEN_UP, "*", givenUp);
        Check.until("the seed arrives", () -> sink.bodySet().contains("seed-0"));
        Answers answers = new Answers();
        TransactionMQProducer producer = producer("SpineTranP-" + id, answers);
        Set<String> expected = new TreeSet<>(Set.of("seed-0"));
        for (int i = 0; i < 5; i++) {
            send(producer, "commit-none-" + i, LocalTransactionState.COMMIT_MESSAGE);
            send(producer, "rollback-none-" + i, LocalTransactionState.ROLLBACK_MESSAGE);
            expected.add("commit-none-" + i);
        }
        Check.until("what was committed arrives", () -> sink.bodySet().equals(expected));
        TransactionSendResult unknown =
            send(producer, "unknown-commit-0", LocalTransactionState.UNKNOW);
        send(producer, "unknown-rollback-0", LocalTransactionState.UNKNOW);
        send(producer, "throws-commit-0", LocalTransactionState.UNKNOW);
        send(producer, "unknown-unknown-" + id, LocalTransactionState.UNKNOW);
        long known = Clients.messageCount(plain, topic);
        Check.same((long) expected.size(), known, "no half message is in the topic");
        expected.addAll(Set.of("unknown-commit-0", "throws-commit-0"));
        Check.until("what the check decides arrives", () -> sink.bodySet().equals(expected));
        question(answers, unknown);
        otherProducer(expected);
        Check.until("what nobody knows is given up",
            () -> givenUp.bodySet().contains("unknown-unknown-" + id));
        givenUp();
        Check.until("it was asked for as often as may be",
            () -> answers.times("unknown-unknown-" + id) == CHECKS_MOST);
        Check.that(answers.times("unknown-rollback-0") >= 1, "questions for the one rolled back");
        Check.same(Set.of("unknown-commit-0", "unknown-rollback-0", "throws-commit-0",
            "unknown-unknown-" + id), answers.asked.keySet(), "what was asked for");
        Check.same(expected, sink.bodySet(), "nothing else arrived");
        Check.same(expected.size(), sink.size(), "each arrived once");
        Check.same((long) expected.size(), Clients.messageCount(plain, topic), "in the topic");
        finals();
        producer.shutdown();
        consumer.shutdown();
        last.shutdown();
    }

    private TransactionMQProducer producer(String group, Answers answers) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setNamesrvAddr(plain.getNamesrvAddr());
        producer.setInstanceName(Clients.instance());
        producer.setMqClientApiTimeout(Clients.SEND_TIMEOUT_MS);
        producer.setHeartbeatBrokerInterval(Clients.HEARTBEAT_MS);
        producer.setSendMsgTimeout(Clients.SEND_TIMEOUT_MS);
        producer.setTransactionListener(answers);
        producer.start();
        return producer;
    }

    private TransactionSendResult send(TransactionMQProducer producer, String body,
        LocalTransactionState state) throws Exception {
        Message message = Clients.text(topic, "T", body);
        message.setKeys("key-" + body);
        message.putUserProperty("colour", "grün");
        message.setFlag(7);
        TransactionSendResult result = producer.sendMessageInTransaction(message, null);
        Check.same(SendStatus.SEND_OK, result.getSendStatus(), body + ": send status");
        Check.same(state, result.getLocalTransactionState(), body + ": local state");
        Check.same(result.getMsgId(), result.getTransactionId(), body + ": transaction id");
        return result;
    }

    /** What a producer is shown is the message it sent, with its id and its queue. */
    private void question(Answers answers, TransactionSendResult sent) {
        List<MessageExt> asked = answers.asked.get("unknown-commit-0");
        // Again when the answer comes late.
        Check.that(!asked.isEmpty(), "questions for the one committed");
        MessageExt message = asked.get(0);
        Check.same(topic, message.getTopic(), "asked: topic");
        Check.same("T", message.getTags(), "asked: tags");
        Check.same("key-unknown-commit-0", message.getKeys(), "asked: keys");
        Check.same("grün", message.getUserProperty("colour"), "asked: property");
        Check.same(sent.getTransactionId(), message.getTransactionId(), "asked: transaction id");
        Check.same(sent.getMessageQueue().getQueueId(), message.getQueueId(), "asked: queue");
        Check.same("1", message.getProperty(MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES),
            "asked: which time it is");
    }

    /** A producer that is gone has its group answer for it. */
    private void otherProducer(Set<String> expected) throws Exception {
        String group = "SpineHeirP-" + id;
        Answers first = new Answers();
        Answers second = new Answers();
        TransactionMQProducer gone = producer(group, first);
        TransactionMQProducer heir = producer(group, second);
        // A producer tells its group only to brokers that it sends to.
        send(heir, "commit-none-heir", LocalTransactionState.COMMIT_MESSAGE);
        send(gone, "unknown-commit-gone", LocalTransactionState.UNKNOW);
        gone.shutdown();
        expected.addAll(Set.of("commit-none-heir", "unknown-commit-gone"));
        Check.until("the heir decides", () -> sink.bodySet().equals(expected));
        Check.same(0, first.times("unknown-commit-gone"), "questions to the one that is gone");
        Check.that(second.times("unknown-commit-gone") >= 1, "questions to the heir");
        heir.shutdown();
    }

    private void givenUp() {
        MessageExt message = givenUp.messages.stream()
            .filter(each -> Sink.text(each).equals("unknown-unknown-" + id)).findFirst().orElseThrow();
        Check.same(GIVEN_UP, message.getTopic(), "given up: topic");
        Check.same(topic, message.getProperty(MessageConst.PROPERTY_REAL_TOPIC), "real topic");
        Check.same(Integer.toString(CHECKS_MOST),
            message.getProperty(MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES), "its checks");
    }

    /** What arrives is what was sent, and says that it was committed. */
    private void finals() {
        for (MessageExt message : sink.messages) {
            String body = Sink.text(message);
            if (body.equals("seed-0")) {
                continue;
            }
            Check.same("T", message.getTags(), body + ": tags");
            Check.same("key-" + body, message.getKeys(), body + ": keys");
            Check.same("grün", message.getUserProperty("colour"), body + ": property");
            Check.same(8, message.getSysFlag() & 12, body + ": committed");
            Check.same(message.getMsgId(), message.getTransactionId(), body + ": transaction id");
            if (body.startsWith("commit")) {
                Check.same(7, message.getFlag(), body + ": flag");
            }
        }
    }
}
