import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Calls of Apache's Java client to a broker with access control, and what comes of each.
 *
 * <pre>java AclCalls BROKER_NAME NAMESRV...</pre>
 *
 * A line for each call: the name server, the call's name, the response code (0: it passed), what the
 * broker said.
 */
public final class AclCalls {
    private static String namesrv;
    private static int instance;

    private AclCalls() {
    }

    public static void main(String[] args) throws Exception {
        for (int i = 1; i < args.length; i++) {
            namesrv = args[i];
            ask(args[0]);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void ask(String broker) throws Exception {
        RPCHook owner = keys("alice-key", "secret-of-alice");
        send("signed", "AliceTopic", owner);
        send("administrator", "AnyTopic", keys("admin-key", "secret-of-admin"));
        send("no key", "AliceTopic", null);
        send("unknown key", "AliceTopic", keys("nobody-key", "secret-of-alice"));
        send("wrong secret", "AliceTopic", keys("alice-key", "secret-of-bob"));
        send("write only", "WriteTopic", owner);
        send("read only", "ReadTopic", owner);
        send("no permission by default", "AnyTopic", owner);
        pull("pull", broker, "AliceTopic", "AliceGroup", owner);
        pull("pull without key", broker, "AliceTopic", "AliceGroup", null);
        pull("pull of what may be written", broker, "WriteTopic", "AliceGroup", owner);
        pull("pull in another's group", broker, "AliceTopic", "BobGroup", owner);
    }

    private static RPCHook keys(String accessKey, String secretKey) {
        return new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
    }

    private interface Call {
        void run() throws Exception;
    }

    private static void report(String name, Call call) {
        int code = 0;
        String text = "";
        try {
            call.run();
        } catch (Exception error) {
            Throwable cause = error;
            while (cause != null && !(cause instanceof MQBrokerException)) {
                cause = cause.getCause();
            }
            code = cause == null ? -1 : ((MQBrokerException) cause).getResponseCode();
            text = cause == null ? error.toString() : ((MQBrokerException) cause).getErrorMessage();
        }
        System.out.println(String.join("\t", "CALL", namesrv, name, "" + code,
            text.replace('\n', ' ')));
    }

    private static void send(String name, String topic, RPCHook hook) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("AclProducers", hook);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("acl-" + instance++);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(15_000);
        producer.setMqClientApiTimeout(15_000);
        producer.start();
        byte[] body = name.getBytes(StandardCharsets.UTF_8);
        report(name, () -> producer.send(new Message(topic, body)));
        producer.shutdown();
    }

    private static void pull(String name, String broker, String topic, String group, RPCHook hook)
        throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, hook);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("acl-" + instance++);
        consumer.setMqClientApiTimeout(15_000);
        consumer.start();
        MessageQueue queue = new MessageQueue(topic, broker, 0);
        report(name, () -> consumer.pull(queue, "*", 0, 8));
        consumer.shutdown();
    }
}
