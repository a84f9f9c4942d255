import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * A failed consumption comes again. A broker with code 36 keeps the message itself and delays it by
 * the level asked for; where 36 is refused the client sends the message to %RETRY%group, delayed by
 * level 3. The second way is forced by a hook, so that it is shown with every broker.
 */
final class RetryRound {
    private static final long REDELIVERY_MS = Long.getLong("round.redelivery_ms", 40_000);
    private static final int CONSUMER_SEND_MSG_BACK = 36;
    private final String topic;
    private final DefaultMQProducer producer;
    private final FailOnce plainSink = new FailOnce();
    private final FailOnce resentSink = new FailOnce();
    private DefaultMQPushConsumer plain;
    private DefaultMQPushConsumer resent;

    /** Refuses each message the first time it comes. */
    private static final class FailOnce extends Sink {
        @Override
        public ConsumeConcurrentlyStatus consumeMessage(
            List<MessageExt> batch, ConsumeConcurrentlyContext context) {
            super.consumeMessage(batch, context);
            context.setDelayLevelWhenNextConsume(1);
            return batch.get(0).getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }

    private static final class RefuseSendBack implements RPCHook {
        @Override
        public void doBeforeRequest(String address, RemotingCommand request) {
            if (request.getCode() == CONSUMER_SEND_MSG_BACK) {
                throw new IllegalStateException("refused by the round");
            }
        }

        @Override
        public void doAfterResponse(String address, RemotingCommand request,
            RemotingCommand response) {
        }
    }

    RetryRound(String id, DefaultMQProducer producer) {
        this.topic = "SpineRetry-" + id;
        this.producer = producer;
    }

    /** Start both consumers; the delays run while other parts of the round do. */
    void begin() throws Exception {
        Clients.sendTexts(producer, topic, "T", "fails", 1);
        plain = Clients.push("SpineRetryG-" + topic, topic, "*", plainSink);
        resent = Clients.idlePush("SpineResendG-" + topic, topic, "*", new RefuseSendBack());
        resent.registerMessageListener(resentSink);
        resent.start();
    }

    void finish() throws Exception {
        arrivesAgain("sent back", plainSink);
        arrivesAgain("sent again by the client", resentSink);
        plain.shutdown();
        resent.shutdown();
    }

    private void arrivesAgain(String how, Sink sink) throws Exception {
        Check.until("it arrives again, " + how, REDELIVERY_MS, () -> sink.size() >= 2);
        Check.same(2, sink.size(), how + ": deliveries");
        MessageExt again = sink.messages.get(1);
        Check.same("fails-0", Sink.text(again), how + ": body");
        Check.same(1, again.getReconsumeTimes(), how + ": reconsume times");
        Check.same(topic, again.getTopic(), how + ": the listener sees the first topic");
        Check.same("T", again.getTags(), how + ": tags");
        Check.same(sink.messages.get(0).getMsgId(), again.getMsgId(), how + ": client's id");
    }
}
