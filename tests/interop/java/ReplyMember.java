import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Replies to requests of one topic, and sends requests to another one.
 *
 * ReplyMember NAMESRV ANSWERED_TOPIC ASKED_TOPIC COUNT
 *
 * A reply is "java: " and the question. It asks "q-0", "q-1", ... at the same time, each until it is
 * answered, and tells "reply BODY" of each. It ends at the end of its input.
 */
public final class ReplyMember {
    private static final int ASK_MS = 20_000;

    private ReplyMember() {
    }

    public static void main(String[] args) throws Exception {
        Clients.use(args[0]);
        DefaultMQProducer producer = Clients.producer("ReplyMemberP");
        DefaultMQPushConsumer consumer = Clients.idlePush("ReplyMemberG", args[1], "*", null);
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt message : batch) {
                answer(producer, message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Set<String> answered = ConcurrentHashMap.newKeySet();
        int count = Integer.parseInt(args[3]);
        // A broker pushes a reply to clients that it had a heartbeat from; the first may come later.
        while (answered.size() < count) {
            for (int i = 0; i < count; i++) {
                if (!answered.contains("q-" + i)) {
                    ask(producer, args[2], "q-" + i, answered);
                }
            }
            long end = System.currentTimeMillis() + 3000;
            while (answered.size() < count && System.currentTimeMillis() < end) {
                Thread.sleep(20);
            }
        }
        tell("done");
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    private static void answer(DefaultMQProducer producer, MessageExt message) {
        try {
            String body = "java: " + Sink.text(message);
            Clients.sent(producer.send(MessageUtil.createReplyMessage(
                message, body.getBytes(StandardCharsets.UTF_8))));
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    private static void ask(DefaultMQProducer producer, String topic, String question,
        Set<String> answered) throws Exception {
        producer.request(Clients.text(topic, "T", question), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                // Some releases call this without a reply when the question is sent.
                if (message != null && answered.add(question)) {
                    tell("reply " + question + " "
                        + new String(message.getBody(), StandardCharsets.UTF_8));
                }
            }

            @Override
            public void onException(Throwable error) {
                // It is asked again.
            }
        }, ASK_MS);
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
