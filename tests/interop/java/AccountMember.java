import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * A producer and a consumer of a namespace of the second kind, or with keys and a token, of 5.x.
 *
 * AccountMember NAMESRV TOPIC GROUP COUNT
 *
 * With -Dmember.namespace, -Dmember.access_key, -Dmember.secret_key and -Dmember.token. It sends so many
 * messages, "sent", tells what it gets, "got BODY", and stops at the end of its input.
 */
public final class AccountMember {
    /** Of each request, on a busy machine. */
    private static final int PATIENCE_MS = 60_000;

    private AccountMember() {
    }

    public static void main(String[] args) throws Exception {
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            args[2], hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName(Clients.instance());
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener(sink);
        DefaultMQProducer producer = new DefaultMQProducer(args[2], hook());
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName(Clients.instance());
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.setSendMsgTimeout(PATIENCE_MS);
        String namespace = System.getProperty("member.namespace");
        if (namespace != null) {
            consumer.setNamespaceV2(namespace);
            producer.setNamespaceV2(namespace);
        }
        producer.start();
        Clients.sendTexts(producer, args[1], "", "java", Integer.parseInt(args[3]));
        System.out.println("sent");
        consumer.start();
        Clients.tellWhileThereIsInput(sink);
        consumer.shutdown();
        producer.shutdown();
        System.out.println("left");
        System.exit(0);
    }

    private static RPCHook hook() {
        String key = System.getProperty("member.access_key");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(
            key, System.getProperty("member.secret_key"), System.getProperty("member.token")));
    }
}
