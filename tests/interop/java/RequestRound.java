import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Requests and replies through one broker: sync, async, none, late, to an asker that went away.
 *
 * RequestRound NAMESRV CLUSTER waits|early
 *
 * The clients 4.9.4 and 5.3.1 to 5.3.3 do not wait for the answer to a sync question: they return the
 * question, or say that nobody answered, as soon as it is sent ("early"). With them only the answer's
 * way can be shown. A callback is also called without an answer when its question is sent.
 *
 * The last line is "ok N checks".
 */
public final class RequestRound {
    private static final String RUN = Long.toString(System.currentTimeMillis(), 36) + "-"
        + ProcessHandle.current().pid();
    private static final String TOPIC = "RequestRound-" + RUN;
    private static final int ASK_MS = 30_000;
    private static final int SHORT_ASK_MS = 4_000;
    private static final int LARGE_SIZE = 100_000;
    private static final String ID = "[0-9A-F]{32}";
    /** Questions that nobody answers by itself. */
    private static final String HELD = "held";
    /** By question: the id of the stored answer, or why there is none. */
    private static final Map<String, String> ANSWERS = new ConcurrentHashMap<>();
    private final String replyTopic;
    private final boolean waits;
    private final DefaultMQProducer asker;
    private final DefaultMQProducer answerer;
    private final BlockingQueue<MessageExt> held = new LinkedBlockingQueue<>();
    private volatile boolean consuming;
    private int stored;

    private RequestRound(String cluster, boolean waits) throws Exception {
        this.waits = waits;
        replyTopic = cluster + "_REPLY_TOPIC";
        asker = Clients.producer("RequestAskers-" + RUN);
        answerer = Clients.producer("RequestAnswerers-" + RUN);
    }

    public static void main(String[] args) {
        try {
            Clients.use(args[0]);
            new RequestRound(args[1], args[2].equals("waits")).run();
            System.out.println("ok " + Check.count() + " checks");
            System.exit(0);
        } catch (Throwable error) {
            System.out.println("answered: " + ANSWERS);
            error.printStackTrace();
            System.exit(1);
        }
    }

    private void run() throws Exception {
        // A first message makes the topic, so that the consumer has queues before it is asked.
        Clients.sent(asker.send(Clients.text(TOPIC, "T", "no question")));
        DefaultMQPushConsumer consumer =
            Clients.idlePush("RequestConsumers-" + RUN, TOPIC, "*", null);
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt message : batch) {
                answer(message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Check.until("the consumer is given messages", () -> consuming);
        Check.until("the broker knows the asker", this::isKnown);
        stored = (int) count();
        sync();
        async();
        large();
        silence();
        lateAnswer();
        askerIsGone();
        nobodyIsNamed();
        Check.until("the answers are stored", () -> count() == stored);
        consumer.shutdown();
        asker.shutdown();
        answerer.shutdown();
    }

    /** The broker knows an asker from its first heartbeat on, which comes when it likes. */
    private boolean isKnown() throws Exception {
        String question = "warm-" + ANSWERS.size();
        asker.request(Clients.text(TOPIC, "T", question), keep(new AtomicReference<>()), ASK_MS);
        Check.until(question + " is answered", () -> ANSWERS.containsKey(question));
        return ANSWERS.get(question).matches(ID);
    }

    private void answer(MessageExt message) {
        String question = Sink.text(message);
        if (question.startsWith(HELD)) {
            held.add(message);
        } else if (question.equals("no question")) {
            consuming = true;
        } else {
            try {
                String body = question.startsWith("large") ? question : "re: " + question;
                Message reply = MessageUtil.createReplyMessage(
                    message, body.getBytes(StandardCharsets.UTF_8));
                SendResult result = Clients.sent(answerer.send(reply));
                ANSWERS.put(question, result.getOffsetMsgId());
            } catch (Exception error) {
                ANSWERS.put(question, error.toString());
            }
        }
    }

    private long count() throws Exception {
        return Clients.messageCount(answerer, replyTopic);
    }

    private interface Question {
        Message ask(Message message) throws Exception;
    }

    private void sync() throws Exception {
        for (int i = 0; i < 8; i++) {
            sync("sync-" + i, message -> asker.request(message, ASK_MS));
        }
        sync("selected", message -> asker.request(
            message, (queues, any, index) -> queues.get((Integer) index), 0, ASK_MS));
        MessageQueue queue = asker.fetchPublishMessageQueues(TOPIC).get(0);
        sync("to a queue", message -> asker.request(message, queue, ASK_MS));
    }

    private void sync(String text, Question question) throws Exception {
        Message message = Clients.text(TOPIC, "T", text);
        if (waits) {
            answered(text, "re: " + text, (MessageExt) question.ask(message));
            return;
        }
        try {
            question.ask(message);
        } catch (RequestTimeoutException early) {
            Check.that(true, "5.3.3 says that nobody answered");
        }
        told(text);
    }

    /** Who answered is told that the answer arrived, and where it is stored. */
    private void told(String question) throws Exception {
        Check.until(question + ": told that it arrived", () -> ANSWERS.containsKey(question));
        Check.that(ANSWERS.get(question).matches(ID),
            question + ": id of the stored answer, not " + ANSWERS.get(question));
        stored++;
    }

    private void answered(String question, String body, MessageExt reply) throws Exception {
        Check.that(reply != null, question + ": an answer");
        Check.same(body, Sink.text(reply), question + ": the answer");
        Check.same(replyTopic, reply.getTopic(), question + ": topic");
        Check.same(0, reply.getQueueId(), question + ": queue");
        Check.same("127.0.0.1", reply.getBornHostString(), question + ": who answered");
        String asked = asker.getDefaultMQProducerImpl().getMqClientFactory().getClientId();
        Check.same(asked, reply.getProperty(MessageConst.PROPERTY_MESSAGE_REPLY_TO_CLIENT),
            question + ": who asked");
        Check.that(reply.getProperty(MessageConst.PROPERTY_CORRELATION_ID) != null,
            question + ": correlation id");
        long pushed = Long.parseLong(reply.getProperty("PUSH_REPLY_TIME"));
        long arrived = Long.parseLong(reply.getProperty("ARRIVE_TIME"));
        Check.that(arrived >= pushed && pushed >= reply.getBornTimestamp(),
            question + ": sent, pushed, arrived");
        told(question);
    }

    private void async() throws Exception {
        BlockingQueue<MessageExt> replies = new LinkedBlockingQueue<>();
        for (int i = 0; i < 8; i++) {
            asker.request(Clients.text(TOPIC, "T", "async-" + i), new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    if (message != null) {
                        replies.add((MessageExt) message);
                    }
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                }
            }, ASK_MS);
        }
        for (int i = 0; i < 8; i++) {
            MessageExt reply = replies.poll(ASK_MS, TimeUnit.MILLISECONDS);
            Check.that(reply != null, "async answer " + i);
            answered(Sink.text(reply).substring("re: ".length()), Sink.text(reply), reply);
        }
    }

    /** Both ways are compressed by the clients. */
    private void large() throws Exception {
        StringBuilder body = new StringBuilder("large");
        while (body.length() < LARGE_SIZE) {
            body.append(" and larger");
        }
        AtomicReference<Message> reply = new AtomicReference<>();
        asker.request(Clients.text(TOPIC, "T", body.toString()), keep(reply), ASK_MS);
        Check.until("the large answer", () -> reply.get() != null);
        answered(body.toString(), body.toString(), (MessageExt) reply.get());
    }

    private static RequestCallback keep(AtomicReference<Message> reply) {
        return new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                reply.set(message);
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
            }
        };
    }

    private void silence() throws Exception {
        try {
            asker.request(Clients.text(TOPIC, "T", HELD + " sync"), SHORT_ASK_MS);
            Check.that(!waits, "a question that nobody answers fails");
        } catch (RequestTimeoutException expected) {
            Check.that(true, "it timed out");
        }
        AtomicReference<Throwable> failure = new AtomicReference<>();
        asker.request(Clients.text(TOPIC, "T", HELD + " async"), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                if (message != null) {
                    failure.set(new AssertionError("answered: " + message));
                }
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
            }
        }, SHORT_ASK_MS);
        Check.until("the async question fails", () -> failure.get() != null);
        Check.same(RequestTimeoutException.class, failure.get().getClass(),
            "how it fails");
    }

    /** The asker gave up; the answer is pushed all the same, and who answers is told success. */
    private void lateAnswer() throws Exception {
        for (String which : new String[] {"sync", "async"}) {
            MessageExt question = held.poll(ASK_MS, TimeUnit.MILLISECONDS);
            Check.that(question != null, "the held question, " + which);
            Clients.sent(answerer.send(MessageUtil.createReplyMessage(question, new byte[] {1})));
            stored++;
        }
    }

    private void askerIsGone() throws Exception {
        DefaultMQProducer leaving = Clients.producer("RequestLeavers-" + RUN);
        String id = leaving.getDefaultMQProducerImpl().getMqClientFactory().getClientId();
        leaving.request(Clients.text(TOPIC, "T", HELD + " and gone"),
            keep(new AtomicReference<>()), ASK_MS);
        MessageExt question = held.poll(ASK_MS, TimeUnit.MILLISECONDS);
        Check.that(question != null, "the question of who left");
        leaving.shutdown();
        refused(MessageUtil.createReplyMessage(question, new byte[] {1}),
            "push reply message fail, channel of <" + id + "> not found.");
    }

    private void nobodyIsNamed() throws Exception {
        Message reply = new Message(replyTopic, new byte[] {1});
        MessageAccessor.putProperty(reply, MessageConst.PROPERTY_MESSAGE_TYPE, "reply");
        MessageAccessor.putProperty(reply, MessageConst.PROPERTY_CORRELATION_ID, "1");
        refused(reply, "reply message properties[REPLY_TO_CLIENT] is null");
    }

    /** Refused answers are stored too, each time the client tries. */
    private void refused(Message reply, String remark) throws Exception {
        long before = count();
        try {
            answerer.send(reply);
            Check.that(false, "refused: " + remark);
        } catch (MQClientException error) {
            Check.same(1, error.getResponseCode(), "code of: " + remark);
            MQBrokerException cause = (MQBrokerException) error.getCause();
            Check.same(remark, cause.getErrorMessage(), "remark");
        }
        int tries = answerer.getRetryTimesWhenSendFailed() + 1;
        Check.until("stored as often as tried: " + remark, () -> count() == before + tries);
        stored += tries;
    }
}
