import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;

/**
 * A broadcasting consumer that tells what it gets, "got BODY", and stops at the end of its input.
 *
 * CastMember NAMESRV TOPIC GROUP INSTANCE
 *
 * Its offsets are in the file of 127.0.0.1@INSTANCE, below -Drocketmq.client.localOffsetStoreDir.
 */
public final class CastMember {
    private CastMember() {
    }

    public static void main(String[] args) throws Exception {
        Clients.use(args[0]);
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = Clients.idlePush(args[2], args[1], "*", null);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(args[3]);
        // The enumeration's package differs between 4.x and 5.x, so it is never named here.
        consumer.setMessageModel(Enum.valueOf(
            consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
        consumer.registerMessageListener(sink);
        consumer.start();
        Clients.tellWhileThereIsInput(sink);
        consumer.shutdown();
        System.out.println("left");
        System.exit(0);
    }
}
