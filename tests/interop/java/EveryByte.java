import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Tells messages as client_shell.py does, but with the properties in base 64 as well.
 *
 * EveryByte NAMESRV read COUNT TOPIC...
 * EveryByte NAMESRV send TOPIC...
 *
 * A line is "message TOPIC ID BODY FLAG NAME=VALUE,...", or the same with "sent".
 */
public final class EveryByte {
    private static final int LARGE = 20_000;

    private EveryByte() {
    }

    public static void main(String[] args) {
        try {
            Clients.use(args[0]);
            int first = args[1].equals("read") ? 3 : 2;
            for (int i = first; i < args.length; i++) {
                if (args[1].equals("read")) {
                    read(args[i], Integer.parseInt(args[2]));
                } else {
                    send(args[i]);
                }
            }
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void read(String topic, int count) throws Exception {
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = Clients.push("EveryByte-" + topic, topic, "*", sink);
        Check.until(count + " messages of " + topic, () -> sink.size() >= count);
        consumer.shutdown();
        for (MessageExt message : sink.messages) {
            tell("message", topic, message.getMsgId(), message);
        }
    }

    private static void tell(String event, String topic, String id, Message message) {
        List<String> properties = new ArrayList<>();
        for (Map.Entry<String, String> each : new TreeMap<>(message.getProperties()).entrySet()) {
            properties.add(text(each.getKey().getBytes(StandardCharsets.UTF_8)) + ":"
                + text(each.getValue().getBytes(StandardCharsets.UTF_8)));
        }
        System.out.println(event + " " + topic + " " + id + " " + text(message.getBody()) + " "
            + message.getFlag() + " " + String.join(",", properties));
    }

    private static String text(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }

    private static Message message(String topic, String kind, int number) {
        byte[] body = Arrays.copyOf((kind + number).getBytes(StandardCharsets.UTF_8), 300);
        for (int i = 0; i < 256; i++) {
            body[body.length - 1 - i] = (byte) i;
        }
        Message message = new Message(topic, "T" + number, "k" + number + " all", body);
        message.setFlag(number);
        message.putUserProperty("kind", kind);
        message.putUserProperty("word", "größe ☃");
        return message;
    }

    private static void send(String topic) throws Exception {
        DefaultMQProducer producer = Clients.producer("EveryByteP");
        for (int i = 0; i < 5; i++) {
            Message message = message(topic, "sync", i);
            SendResult result = Clients.sent(producer.send(message));
            tell("sent", topic, result.getMsgId(), message);
        }
        CountDownLatch latch = new CountDownLatch(5);
        for (int i = 0; i < 5; i++) {
            Message message = message(topic, "async", i);
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    synchronized (EveryByte.class) {
                        tell("sent", topic, result.getMsgId(), message);
                    }
                    latch.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                }
            });
        }
        latch.await();
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            batch.add(message(topic, "batch", i));
        }
        String[] ids = Clients.sent(producer.send(batch)).getMsgId().split(",");
        for (int i = 0; i < ids.length; i++) {
            tell("sent", topic, ids[i], batch.get(i));
        }
        Message once = message(topic, "oneway", 0);
        producer.sendOneway(once);
        tell("sent", topic, once.getProperty("UNIQ_KEY"), once);
        large(producer, topic);
        producer.shutdown();
    }

    /** A body of each codec that the client has: the old one has zlib only. */
    private static void large(DefaultMQProducer producer, String topic) throws Exception {
        Method choose = null;
        for (Method method : DefaultMQProducer.class.getMethods()) {
            if (method.getName().equals("setCompressType")) {
                choose = method;
            }
        }
        Object[] types = choose == null ? new Object[] {"ZLIB"}
            : choose.getParameterTypes()[0].getEnumConstants();
        for (Object type : types) {
            if (choose != null) {
                choose.invoke(producer, type);
            }
            Message message = new Message(topic,
                type.toString().repeat(LARGE).getBytes(StandardCharsets.US_ASCII));
            // The client leaves the compressed body in the message when it fails only.
            Message told = new Message(topic, message.getBody());
            SendResult result = Clients.sent(producer.send(message));
            tell("sent", topic, result.getMsgId(), told);
        }
    }
}
