import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Popping: push consumers whose queues the broker shares out, in the mode that an administrator
 * set, with failures and their retries; then pops by the client's own calls, in order and not,
 * with acknowledgements, batches of them, and messages hidden for another time.
 */
final class PopRound {
    private static final int COUNT = 60;
    private static final int INVISIBLE_MS = 15_000;
    /** How long a message of an ordered queue, and one popped by hand, is hidden first. */
    private static final int ORDER_MS = 5000;
    private static final int HAND_MS = 10_000;
    private static final long TIMEOUT_MS = 30_000;

    private final String topic = "PopRound-" + System.nanoTime();
    private final String group = "PopRoundG-" + topic;
    private final DefaultMQProducer producer;
    private final String namesrv;
    private String broker;
    private String address;
    private MQClientAPIImpl api;

    /** Fails what is to fail, as often as its body says. */
    private static final class Failing extends Sink {
        final Map<String, Integer> tries = new ConcurrentHashMap<>();
        final Map<String, Long> last = new ConcurrentHashMap<>();

        @Override
        public ConsumeConcurrentlyStatus consumeMessage(
            List<MessageExt> batch, ConsumeConcurrentlyContext context) {
            super.consumeMessage(batch, context);
            boolean fails = false;
            for (MessageExt message : batch) {
                int before = tries.merge(text(message), 1, Integer::sum) - 1;
                last.put(text(message), System.currentTimeMillis());
                Check.same(before, message.getReconsumeTimes(), text(message) + " tries");
                fails |= text(message).startsWith("fail") && before < 2;
            }
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }

    private PopRound(String namesrv, DefaultMQProducer producer) {
        this.namesrv = namesrv;
        this.producer = producer;
    }

    public static void main(String[] arguments) {
        try {
            Clients.use(arguments[0]);
            new PopRound(arguments[0], Clients.producer("PopRoundP")).run();
            System.out.println("ok " + Check.count() + " checks");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private void run() throws Exception {
        Clients.sendTexts(producer, topic, "T", "seed", 1);
        Check.until("the route is there", () -> !producer.fetchPublishMessageQueues(topic).isEmpty());
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(0);
        broker = queue.getBrokerName();
        address = producer.getDefaultMQProducerImpl().getMqClientFactory()
            .findBrokerAddressInPublish(broker);
        setMode(group, MessageRequestMode.POP);
        Failing sink = new Failing();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            consumers.add(consumer(sink));
        }
        Check.until("the seed arrives", () -> sink.bodySet().contains("seed-0"));
        api = consumers.get(0).getDefaultMQPushConsumerImpl().getmQClientFactory()
            .getMQClientAPIImpl();
        Clients.sendTexts(producer, topic, "T", "plain", COUNT);
        Clients.sendTexts(producer, topic, "T", "fail", 5);
        Clients.sendTexts(producer, topic, "other", "unwanted", 5);
        Check.until("all arrive", () -> sink.bodySet().size() == COUNT + 6);
        for (DefaultMQPushConsumer consumer : consumers) {
            // All may have come to the other one, while this one still asks for its queues.
            Check.until("it pops of all queues", () -> popped(consumer).equals(Set.of(-1)));
            Check.same(Set.of(), new TreeSet<>(Clients.held(consumer, topic)), "what it pulls of");
        }
        inOrder();
        tags();
        Check.until("all failures were tried again",
            () -> sink.tries.entrySet().stream().filter(each -> each.getKey().startsWith("fail"))
                .allMatch(each -> each.getValue() == 3));
        long until = System.currentTimeMillis() + INVISIBLE_MS + 3500;
        byHand();
        while (System.currentTimeMillis() < until) {
            Thread.sleep(100);
        }
        for (Map.Entry<String, Integer> entry : sink.tries.entrySet()) {
            Check.same(entry.getKey().startsWith("fail") ? 3 : 1, entry.getValue(),
                entry.getKey() + " arrived");
        }
        Check.same(COUNT + 6, sink.tries.size(), "what arrived");
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        backToPull();
    }

    private void setMode(String of, MessageRequestMode mode) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName(Clients.instance());
        admin.setMqClientApiTimeout(Clients.SEND_TIMEOUT_MS);
        admin.start();
        admin.setMessageRequestMode(address, topic, of, mode, 8, TIMEOUT_MS);
        admin.shutdown();
    }

    private DefaultMQPushConsumer consumer(Sink sink) throws Exception {
        DefaultMQPushConsumer consumer = Clients.idlePush(group, topic, "T", null);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(INVISIBLE_MS);
        consumer.setPopBatchNums(8);
        consumer.registerMessageListener(sink);
        // A failure is hidden for a second, then two, in place of ten and thirty.
        Field levels = DefaultMQPushConsumerImpl.class.getDeclaredField("popDelayLevel");
        levels.setAccessible(true);
        int[] seconds = (int[]) levels.get(consumer.getDefaultMQPushConsumerImpl());
        seconds[0] = 1;
        seconds[1] = 2;
        consumer.start();
        return consumer;
    }

    private Set<Integer> popped(DefaultMQPushConsumer consumer) {
        Set<Integer> queues = new TreeSet<>();
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getPopProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(topic)) {
                queues.add(queue.getQueueId());
            }
        }
        return queues;
    }

    // --- the client's own calls

    private PopResult pop(String of, String from, int queueId, int count, long invisibleMs,
        long pollMs, boolean order, String tags) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(of);
        header.setTopic(from);
        header.setQueueId(queueId);
        header.setMaxMsgNums(count);
        header.setInvisibleTime(invisibleMs);
        header.setPollTime(pollMs);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp(tags);
        header.setOrder(order);
        CompletableFuture<PopResult> result = new CompletableFuture<>();
        api.popMessageAsync(broker, address, header, TIMEOUT_MS + pollMs, new PopCallback() {
            @Override
            public void onSuccess(PopResult popped) {
                result.complete(popped);
            }

            @Override
            public void onException(Throwable error) {
                result.completeExceptionally(error);
            }
        });
        return result.get(TIMEOUT_MS + pollMs, TimeUnit.MILLISECONDS);
    }

    private static final class Acked extends CompletableFuture<AckResult> implements AckCallback {
        @Override
        public void onSuccess(AckResult result) {
            complete(result);
        }

        @Override
        public void onException(Throwable error) {
            completeExceptionally(error);
        }
    }

    private AckStatus ack(String of, MessageExt message) throws Exception {
        String receipt = message.getProperty(MessageConst.PROPERTY_POP_CK);
        String[] parts = ExtraInfoUtil.split(receipt);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(of);
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, message.getTopic(), of));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(receipt);
        Acked done = new Acked();
        api.ackMessageAsync(address, TIMEOUT_MS, done, header);
        return done.get(TIMEOUT_MS, TimeUnit.MILLISECONDS).getStatus();
    }

    /** Hide a message for another time; its receipt from then on. */
    private String hide(String of, MessageExt message, long invisibleMs) throws Exception {
        String receipt = message.getProperty(MessageConst.PROPERTY_POP_CK);
        String[] parts = ExtraInfoUtil.split(receipt);
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(of);
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, message.getTopic(), of));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(receipt);
        header.setInvisibleTime(invisibleMs);
        Acked done = new Acked();
        api.changeInvisibleTimeAsync(broker, address, header, TIMEOUT_MS, done);
        AckResult result = done.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        Check.same(AckStatus.OK, result.getStatus(), "hidden");
        return result.getExtraInfo();
    }

    private static List<String> bodies(PopResult result) {
        return result.getMsgFoundList() == null ? List.of()
            : Sink.bodies(result.getMsgFoundList());
    }

    private void fill(String to, int queueId, String... bodies) throws Exception {
        for (String body : bodies) {
            Message message = Clients.text(to, "T", body);
            Clients.sent(producer.send(message, new MessageQueue(to, broker, queueId)));
        }
    }

    /** A group that keeps order: a queue is closed until what it gave out is done with. */
    private void inOrder() throws Exception {
        String of = "PopRoundOrder-" + topic;
        String from = topic + "-order";
        int queueId = 1 - Math.min(1, Clients.sent(producer.send(Clients.text(from, "T", "first")))
            .getMessageQueue().getQueueId());
        fill(from, queueId, "a", "b", "c", "d");
        Check.until("all can be popped",
            () -> producer.maxOffset(new MessageQueue(from, broker, queueId)) == 4);
        List<String> seen = new ArrayList<>();
        PopResult result = pop(of, from, queueId, 2, ORDER_MS, 0, true, "*");
        List<MessageExt> two = result.getMsgFoundList();
        seen.addAll(bodies(result));
        Check.same(PopStatus.POLLING_NOT_FOUND,
            pop(of, from, queueId, 2, ORDER_MS, 0, true, "*").getPopStatus(), "the queue is closed");
        Check.same(AckStatus.OK, ack(of, two.get(0)), "the first is acknowledged");
        Check.same(PopStatus.POLLING_NOT_FOUND,
            pop(of, from, queueId, 2, ORDER_MS, 0, true, "*").getPopStatus(), "it still is");
        // Nobody acknowledges the second: it comes again in its place, and says so.
        result = pop(of, from, queueId, 2, 60_000, 3 * ORDER_MS, true, "*");
        Check.same(List.of("b", "c"), bodies(result), "again in order");
        Check.same(1, result.getMsgFoundList().get(0).getReconsumeTimes(), "the second time");
        Check.same(0, result.getMsgFoundList().get(1).getReconsumeTimes(), "the first time");
        hide(of, result.getMsgFoundList().get(0), 1000);
        Check.same(AckStatus.OK, ack(of, result.getMsgFoundList().get(1)), "the third");
        result = pop(of, from, queueId, 8, 60_000, 3 * ORDER_MS, true, "*");
        Check.same(List.of("b", "c", "d"), bodies(result), "from the first that is open");
        for (MessageExt message : result.getMsgFoundList()) {
            Check.same(AckStatus.OK, ack(of, message), "acknowledged");
            seen.add(Sink.text(message));
        }
        Check.same(List.of("a", "b", "b", "c", "d"), seen, "what came");
        Check.same(PopStatus.POLLING_NOT_FOUND,
            pop(of, from, queueId, 8, 60_000, 100, true, "*").getPopStatus(), "nothing is left");
    }

    /** Receipts: acknowledged alone and together, hidden for less, and left alone. */
    private void byHand() throws Exception {
        String of = "PopRoundHand-" + topic;
        String from = topic + "-hand";
        Clients.sendTexts(producer, from, "T", "first", 1);
        Check.same(List.of("first-0"), bodies(pop(of, from, -1, 32, 60_000, 10_000, false, "*")),
            "the first");
        CompletableFuture<PopResult> waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return pop(of, from, -1, 32, 60_000, 8000, false, "*");
            } catch (Exception error) {
                throw new AssertionError(error);
            }
        });
        Thread.sleep(300);
        fill(from, 2, "woken");
        PopResult woken = waiting.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        Check.same(List.of("woken"), bodies(woken), "a pop that waits is woken");
        Check.same(AckStatus.OK, ack(of, woken.getMsgFoundList().get(0)), "and acknowledged");
        MessageQueue queue = new MessageQueue(from, broker, 0);
        long before = producer.maxOffset(queue);
        fill(from, 0, "0", "1", "2", "3", "4", "5");
        Check.until("six can be popped", () -> producer.maxOffset(queue) == before + 6);
        PopResult result = pop(of, from, 0, 32, HAND_MS, 1000, false, "*");
        List<MessageExt> six = result.getMsgFoundList().subList(
            result.getMsgFoundList().size() - 6, result.getMsgFoundList().size());
        Check.same(List.of("0", "1", "2", "3", "4", "5"), Sink.bodies(six), "six");
        Check.same(AckStatus.OK, ack(of, six.get(0)), "one is acknowledged");
        Acked together = new Acked();
        api.batchAckMessageAsync(address, TIMEOUT_MS, together, from, of, List.of(
            six.get(1).getProperty(MessageConst.PROPERTY_POP_CK),
            six.get(2).getProperty(MessageConst.PROPERTY_POP_CK)));
        Check.same(AckStatus.OK, together.get(TIMEOUT_MS, TimeUnit.MILLISECONDS).getStatus(),
            "two at once");
        String receipt = hide(of, six.get(3), 60_000);
        six.get(3).getProperties().put(MessageConst.PROPERTY_POP_CK, receipt);
        Check.same(AckStatus.OK, ack(of, six.get(3)), "acknowledged by its new receipt");
        hide(of, six.get(4), 1000);
        Set<String> again = new TreeSet<>();
        Check.until("two come again", () -> {
            PopResult retried = pop(of, from, -1, 32, 60_000, 500, false, "*");
            if (retried.getMsgFoundList() != null) {
                for (MessageExt message : retried.getMsgFoundList()) {
                    again.add(Sink.text(message));
                    Check.same(1, message.getReconsumeTimes(), "its second time");
                    Check.same(from, message.getTopic(), "under its topic");
                    Check.same(AckStatus.OK, ack(of, message), "a retry is acknowledged");
                }
            }
            return again.containsAll(Set.of("4", "5"));
        });
        Check.same(Set.of("4", "5"), again, "what came again");
        MessageExt strange = six.get(0);
        strange.getProperties().put(MessageConst.PROPERTY_POP_CK, "0 1 2 0 0 x 99 0");
        Check.same(AckStatus.NO_EXIST, ack(of, strange), "a queue that is not there");
    }

    private void tags() throws Exception {
        String of = "PopRoundTags-" + topic;
        String from = topic + "-tags";
        for (int i = 0; i < 6; i++) {
            Clients.sent(producer.send(Clients.text(from, i % 2 == 0 ? "even" : "odd", "" + i)));
        }
        Set<String> found = new TreeSet<>();
        Check.until("the odd ones come", () -> {
            found.addAll(bodies(pop(of, from, -1, 32, 60_000, 200, false, "odd")));
            return found.size() == 3;
        });
        Check.same(Set.of("1", "3", "5"), found, "by tag");
    }

    /** The mode is set back: the group's next consumer pulls, and gets what is new. */
    private void backToPull() throws Exception {
        setMode(group, MessageRequestMode.PULL);
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = consumer(sink);
        Check.until("it pulls", () -> !Clients.held(consumer, topic).isEmpty());
        Clients.sendTexts(producer, topic, "T", "pulled", 4);
        Check.until("what is new arrives",
            () -> sink.bodySet().equals(Set.of("pulled-0", "pulled-1", "pulled-2", "pulled-3")));
        Check.same(Set.of(), popped(consumer), "it pops nothing");
        consumer.shutdown();
    }
}
