import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Messages for a time: by a delay and by a time, near and far, taken back, refused. The broker rolls
 * what is more than eight seconds ahead, and lets messages be taken back (settings of the test).
 * Clients of 4.9 know none of it, so that the methods are found by name.
 */
final class TimerRound {
    private static final long TICK_MS = 1000;
    /** How late a message may be, behind the end of its tick, on a machine that is busy. */
    private static final long LATE_MS = 10_000;
    private static final long FAR_BACK_MS = 19_300;
    private static final long DAY_MS = 86_400_000L;
    private static final String ILLEGAL = "timer message illegal, the delay time should not be bigger"
        + " than the max delay 259200000ms; or if set del msg, the delay time should be bigger than the"
        + " current time";

    private final String topic = "TimerRound-" + System.nanoTime();
    private final DefaultMQProducer producer;
    private final Arrivals sink = new Arrivals();
    /** By body: not before, Unix ms. */
    private final Map<String, Long> due = new TreeMap<>();

    /** Remembers when each body came. */
    private static final class Arrivals extends Sink {
        final Map<String, Long> times = new ConcurrentHashMap<>();

        @Override
        public ConsumeConcurrentlyStatus consumeMessage(
            List<MessageExt> batch, ConsumeConcurrentlyContext context) {
            long now = System.currentTimeMillis();
            batch.forEach(message -> times.putIfAbsent(text(message), now));
            return super.consumeMessage(batch, context);
        }
    }

    private TimerRound(DefaultMQProducer producer) {
        this.producer = producer;
    }

    public static void main(String[] arguments) {
        try {
            Clients.use(arguments[0]);
            new TimerRound(Clients.producer("TimerRoundP")).run(arguments.length > 1);
            System.out.println("ok " + Check.count() + " checks");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    /** @param halves whether half messages wait after their commit; Apache's broker loses them. */
    private void run(boolean halves) throws Exception {
        Clients.sendTexts(producer, topic, "T", "seed", 1);
        DefaultMQPushConsumer consumer = Clients.push("TimerRoundG-" + topic, topic, "*", sink);
        Check.until("the seed arrives", () -> sink.bodySet().contains("seed-0"));
        refusals();
        List<String> backs = new ArrayList<>();
        String handle = null;
        for (int i = 0; i < 40; i++) {
            send("sec-" + i, "setDelayTimeSec", 1 + i % 4);
            send("ms-" + i, "setDelayTimeMs", 100 + i * 97);
            // Not so soon that it is over before the broker has it.
            send("time-" + i, "setDeliverTimeMs", System.currentTimeMillis() + 3150 + i * 93);
            if (i % 8 == 0) {
                SendResult result = timed("back-" + i, "setDelayTimeMs", 5000 + i * 10);
                handle = handle(result);
                backs.add(handle);
                Check.same(result.getMsgId(), recall(topic, handle), "what was taken back");
            }
        }
        send("far", "setDelayTimeMs", 14_300);
        // Later, as it is taken back only when all others but that one have come.
        SendResult farBack = timed("far-back", "setDelayTimeMs", FAR_BACK_MS);
        long farBackDue = System.currentTimeMillis() + FAR_BACK_MS;
        level();
        atOnce();
        if (halves) {
            transaction();
        }
        wrongRecalls(backs.get(0));
        Set<String> missing = near();
        Check.until("all arrive but the far one", () -> {
            missing.removeAll(sink.times.keySet());
            return missing.isEmpty();
        });
        recall(topic, handle(farBack));
        Check.until("the far one arrives", () -> sink.times.containsKey("far"));
        send("last", "setDeliverTimeMs",
            Math.max(farBackDue, System.currentTimeMillis()) + 2 * TICK_MS);
        Check.until("the last arrives", () -> sink.times.containsKey("last"));
        Set<String> expected = new TreeSet<>(due.keySet());
        expected.addAll(Set.of("seed-0", "level", "zero", "past"));
        Check.same(expected, sink.bodySet(), "what arrived");
        Check.same(expected.size(), sink.size(), "each once");
        for (Map.Entry<String, Long> entry : due.entrySet()) {
            long late = sink.times.get(entry.getKey()) - entry.getValue();
            Check.that(late >= 0, entry.getKey() + " is early by " + -late);
            Check.that(late <= TICK_MS + LATE_MS, entry.getKey() + " is late by " + late);
        }
        properties();
        consumer.shutdown();
    }

    private Set<String> near() {
        Set<String> bodies = new TreeSet<>(due.keySet());
        bodies.remove("far");
        return bodies;
    }

    /** Send a message that has to come, and note when it may. */
    private void send(String body, String method, long value) throws Exception {
        long now = System.currentTimeMillis();
        timed(body, method, value);
        due.put(body, method.equals("setDeliverTimeMs") ? value
            : now + value * (method.equals("setDelayTimeSec") ? 1000 : 1));
    }

    private SendResult timed(String body, String method, long value) throws Exception {
        Message message = Clients.text(topic, "T", body);
        Message.class.getMethod(method, long.class).invoke(message, value);
        message.setKeys("key-" + body);
        SendResult result = Clients.sent(producer.send(message));
        Check.same(topic, result.getMessageQueue().getTopic(), body + ": topic of the result");
        return result;
    }

    private String handle(SendResult result) throws Exception {
        String handle = (String) SendResult.class.getMethod("getRecallHandle").invoke(result);
        String[] items = new String(Base64.getUrlDecoder().decode(handle), StandardCharsets.UTF_8)
            .split(" ");
        Check.same(5, items.length, "items of the handle");
        Check.same("v1", items[0], "version of the handle");
        Check.same(topic, items[1], "topic of the handle");
        Check.same(result.getMessageQueue().getBrokerName(), items[2], "broker of the handle");
        Check.same(1L, Long.parseLong(items[3]) % TICK_MS, "time of the handle");
        Check.same(result.getMsgId(), items[4], "id of the handle");
        return handle;
    }

    private Object recall(String topic, String handle) throws Exception {
        try {
            return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, topic, handle);
        } catch (java.lang.reflect.InvocationTargetException e) {
            throw (Exception) e.getCause();
        }
    }

    private interface Call {
        void run() throws Exception;
    }

    private static void refused(int code, String words, Call call) throws Exception {
        try {
            call.run();
        } catch (MQBrokerException e) {
            Check.same(code, e.getResponseCode(), words + ": code");
            Check.same(words, e.getErrorMessage(), "remark");
            return;
        }
        throw new AssertionError("not refused: " + words);
    }

    private void refusals() throws Exception {
        refused(13, ILLEGAL, () -> timed("too far", "setDelayTimeMs", 3 * DAY_MS + 60_000));
        refused(13, ILLEGAL, () -> timed("too far", "setDelayTimeSec", 4 * 86_400));
        refused(13, ILLEGAL, () -> timed("too far", "setDeliverTimeMs",
            System.currentTimeMillis() + 4 * DAY_MS));
        Message message = Clients.text(topic, "T", "no number");
        message.putUserProperty("x", "y");
        message.getProperties().put("TIMER_DELAY_SEC", "soon");
        refused(13, ILLEGAL, () -> producer.send(message));
    }

    private void wrongRecalls(String good) throws Exception {
        String[] items = new String(Base64.getUrlDecoder().decode(good), StandardCharsets.UTF_8)
            .split(" ");
        refused(604, "recall failed, timestamp invalid", () -> recall(topic, encode(
            items[1], items[2], "5", items[4])));
        refused(604, "recall failed, timestamp invalid", () -> recall(topic, encode(
            items[1], items[2], String.valueOf(System.currentTimeMillis() + 4 * DAY_MS), items[4])));
        refused(604, "recall failed, topic not match", () -> recall(topic, encode(
            "Other", items[2], items[3], items[4])));
    }

    private static String encode(String... items) {
        return Base64.getUrlEncoder().encodeToString(
            ("v1 " + String.join(" ", items)).getBytes(StandardCharsets.UTF_8));
    }

    /** A level wins over a time. */
    private void level() throws Exception {
        Message message = Clients.text(topic, "T", "level");
        message.setDelayTimeLevel(1);
        Message.class.getMethod("setDelayTimeMs", long.class).invoke(message, 60_000L);
        Clients.sent(producer.send(message));
    }

    /** No delay, and a time that is over. */
    private void atOnce() throws Exception {
        timed("zero", "setDelayTimeSec", 0);
        timed("past", "setDeliverTimeMs", System.currentTimeMillis() - 60_000);
        Check.until("what is due arrives", () -> sink.times.keySet().containsAll(
            Set.of("zero", "past")));
    }

    /** The delay of a half message begins with its commit. */
    private void transaction() throws Exception {
        TransactionMQProducer half = new TransactionMQProducer("TimerRoundHalfP");
        half.setNamesrvAddr(producer.getNamesrvAddr());
        half.setInstanceName(Clients.instance());
        half.setMqClientApiTimeout(Clients.SEND_TIMEOUT_MS);
        half.setSendMsgTimeout(Clients.SEND_TIMEOUT_MS);
        half.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        half.start();
        Message message = Clients.text(topic, "T", "half");
        Message.class.getMethod("setDelayTimeMs", long.class).invoke(message, 2500L);
        due.put("half", System.currentTimeMillis() + 2500);
        half.sendMessageInTransaction(message, null);
        half.shutdown();
    }

    private void properties() {
        for (MessageExt message : sink.messages) {
            String body = Sink.text(message);
            Map<String, String> properties = message.getProperties();
            if (!due.containsKey(body)) {
                Check.that(!properties.containsKey("TIMER_OUT_MS"), body + ": it did not wait");
                continue;
            }
            Check.same(topic, message.getTopic(), body + ": topic");
            Check.same(topic, properties.get("REAL_TOPIC"), body + ": real topic");
            Check.same(String.valueOf(message.getQueueId()), properties.get("REAL_QID"),
                body + ": real queue");
            Check.same("T", message.getTags(), body + ": tags");
            long out = Long.parseLong(properties.get("TIMER_OUT_MS"));
            Check.same(0L, out % TICK_MS, body + ": TIMER_OUT_MS is a whole tick");
            long dequeue = Long.parseLong(properties.get("TIMER_DEQUEUE_MS"));
            Check.that(dequeue >= out + TICK_MS, body + ": its tick was over");
            Check.that(properties.containsKey("TIMER_ENQUEUE_MS"), body + ": TIMER_ENQUEUE_MS");
            Check.same(body.equals("far"), properties.containsKey("TIMER_ROLL_TIMES"),
                body + ": rolled");
        }
    }
}
