import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends and consumes with the client's trace on or off. Prints "sent KIND MSGID" for each message and
 * "ok" when all is done; ends when its input does, since a client of 4.9 that is shut down early does
 * not hand over all its records.
 *
 * TraceRound NAMESRV TOPIC on|off PART...
 *
 * Parts: plain (one with tag and keys, one without, one sent async, a batch), delayed, transaction
 * (one committed, one rolled back), recall (a timed message is taken back), consume (a group that
 * takes them all, and fails one of them once), cloud (a group of the access channel CLOUD).
 */
public final class TraceRound {
    private static final int WAIT_SECONDS = 75;
    private final String namesrv;
    private final String topic;
    private final boolean trace;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final List<Runnable> shutdowns = new ArrayList<>();
    private final Set<String> wanted = new TreeSet<>();

    private TraceRound(String namesrv, String topic, boolean trace) {
        this.namesrv = namesrv;
        this.topic = topic;
        this.trace = trace;
    }

    public static void main(String[] args) throws Exception {
        try {
            run(args);
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] args) throws Exception {
        TraceRound round = new TraceRound(args[0], args[1], args[2].equals("on"));
        for (int i = 3; i < args.length; i++) {
            switch (args[i]) {
                case "plain": round.plain(); break;
                case "delayed": round.delayed(); break;
                case "transaction": round.transaction(); break;
                case "recall": round.recall(); break;
                case "consume": round.consume("TraceC", AccessChannel.LOCAL, true); break;
                case "cloud": round.consume("TraceCloudC", AccessChannel.CLOUD, false); break;
                default: throw new IllegalArgumentException(args[i]);
            }
        }
        System.out.println("ok");
        while (System.in.read() >= 0) {
            continue;
        }
        for (Runnable shutdown : round.shutdowns) {
            shutdown.run();
        }
    }

    private void start(DefaultMQProducer producer, String instance) throws Exception {
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(instance);
        producer.setSendMsgTimeout(15_000);
        producer.setMqClientApiTimeout(15_000);
        producer.start();
        shutdowns.add(producer::shutdown);
    }

    private DefaultMQProducer producer(String group) throws Exception {
        // One group and instance have one producer.
        DefaultMQProducer known = producers.get(group);
        if (known != null) {
            return known;
        }
        DefaultMQProducer producer = new DefaultMQProducer(group, null, trace, null);
        start(producer, "trace-round-p");
        producers.put(group, producer);
        return producer;
    }

    private Message message(String tags, String keys, String body) {
        Message message = new Message(topic, tags, body.getBytes(StandardCharsets.UTF_8));
        if (keys != null) {
            message.setKeys(keys);
        }
        return message;
    }

    private void sent(String kind, String id) {
        System.out.println("sent " + kind + " " + id);
        wanted.add(kind);
    }

    private void plain() throws Exception {
        DefaultMQProducer producer = producer("TraceP");
        sent("tagged", producer.send(message("TagA", "k1 k2", "tagged")).getMsgId());
        sent("bare", producer.send(message(null, null, "bare")).getMsgId());
        CountDownLatch done = new CountDownLatch(1);
        producer.send(message("TagA", "k\u00e9", "async"), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent("async", result.getMsgId());
                done.countDown();
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
            }
        });
        if (!done.await(WAIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the async send is not answered");
        }
        List<Message> batch = new ArrayList<>();
        batch.add(message("TagA", "b1", "batch"));
        batch.add(message("TagA", "b2", "batch"));
        sent("batch", producer.send(batch).getMsgId());
    }

    private void delayed() throws Exception {
        DefaultMQProducer producer = producer("TraceP");
        Message message = message("TagA", "late", "delayed");
        message.setDelayTimeLevel(1);
        sent("delayed", producer.send(message).getMsgId());
    }

    private void transaction() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(null, "TraceTxP", null, trace, null);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object commit) {
                return (Boolean) commit ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        start(producer, "trace-round-tx");
        sent("committed", producer.sendMessageInTransaction(
            message("TagA", "tx1", "committed"), true).getMsgId());
        String rolledBack = producer.sendMessageInTransaction(
            message("TagA", "tx2", "rolled back"), false).getMsgId();
        System.out.println("sent rolled-back " + rolledBack);
    }

    /** By reflection: clients of 4.9 have no recall. */
    private void recall() throws Exception {
        System.setProperty("com.rocketmq.recall.default.trace.enable", "true");
        DefaultMQProducer producer = producer("TraceRecallP");
        Message message = message("TagA", "timed", "recalled");
        Message.class.getMethod("setDelayTimeMs", long.class).invoke(message, 60_000L);
        SendResult result = producer.send(message);
        System.out.println("sent recalled " + result.getMsgId());
        String handle = (String) SendResult.class.getMethod("getRecallHandle").invoke(result);
        Method recall = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class);
        System.out.println("recalled " + recall.invoke(producer, topic, handle));
    }

    private void consume(String group, AccessChannel channel, boolean failOnce) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            group, null, new AllocateMessageQueueAveragely(), trace, null);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("trace-round-" + group);
        consumer.setAccessChannel(channel);
        consumer.setHeartbeatBrokerInterval(2_000);
        consumer.setMqClientApiTimeout(15_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        Set<String> got = new TreeSet<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            synchronized (got) {
                for (MessageExt message : batch) {
                    String body = new String(message.getBody(), StandardCharsets.UTF_8);
                    if (failOnce && body.equals("tagged") && message.getReconsumeTimes() == 0) {
                        context.setDelayLevelWhenNextConsume(1);
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                    got.add(body);
                }
                got.notifyAll();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.currentTimeMillis() + WAIT_SECONDS * 1000L;
        synchronized (got) {
            while (!got.containsAll(wanted)) {
                if (System.currentTimeMillis() > end) {
                    throw new IllegalStateException("got " + got + " of " + wanted);
                }
                got.wait(1000);
            }
        }
        System.out.println("consumed " + got.size());
        shutdowns.add(consumer::shutdown);
    }
}
