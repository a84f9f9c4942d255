import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Rules of consumption that broker and client keep together: java RulesRound NAMESRV BROKER NAME.
 * Every topic has one queue, so that what is before what is known.
 */
public final class RulesRound {
    private static final int MESSAGE_ILLEGAL = 13;
    private static final int BODY_MAX = 4 * 1024 * 1024;
    private final String id = Long.toString(System.currentTimeMillis(), 36);
    private final String brokerAddress;
    private final String brokerName;
    private final DefaultMQProducer producer;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(Clients.SEND_TIMEOUT_MS);

    private RulesRound(String namesrv, String brokerAddress, String brokerName) throws Exception {
        this.brokerAddress = brokerAddress;
        this.brokerName = brokerName;
        Clients.use(namesrv);
        producer = Clients.idleProducer("RulesP");
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setMaxMessageSize(Integer.MAX_VALUE);
        producer.start();
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName(Clients.instance());
        admin.setMqClientApiTimeout(Clients.SEND_TIMEOUT_MS);
        admin.start();
    }

    public static void main(String[] args) {
        int status = 0;
        try {
            RulesRound round = new RulesRound(args[0], args[1], args[2]);
            // They wait for clients that start most of the time, so all go at once.
            List<Part> parts = List.of(round::ownOffsets, round::batches, round::onlyUnacknowledged,
                round::swallowed, round::deadLetters, round::slowHead, round::suspendedQueue,
                round::waitingPull, round::sizes);
            ExecutorService threads = Executors.newFixedThreadPool(parts.size());
            List<Future<?>> done = new ArrayList<>();
            parts.forEach(part -> done.add(threads.submit(() -> {
                part.run();
                return null;
            })));
            for (Future<?> each : done) {
                each.get();
            }
            System.out.println("ok " + Check.count() + " checks");
        } catch (Throwable e) {
            e.printStackTrace(System.out);
            status = 1;
        }
        System.out.flush();
        Runtime.getRuntime().halt(status);
    }

    private interface Part {
        void run() throws Exception;
    }

    private MessageQueue create(String name) throws Exception {
        String topic = name + "-" + id;
        admin.createAndUpdateTopicConfig(brokerAddress, new TopicConfig(topic, 1, 1));
        Check.until("route of " + topic,
            () -> producer.fetchPublishMessageQueues(topic).size() == 1);
        return new MessageQueue(topic, brokerName, 0);
    }

    private List<String> fill(MessageQueue queue, int count) throws Exception {
        List<String> bodies =
            Clients.sendTexts(producer, queue.getTopic(), "T", queue.getTopic(), count);
        Check.until("one pull can have all", () -> producer.maxOffset(queue) == count);
        return bodies;
    }

    private DefaultMQPushConsumer start(String group, MessageQueue queue, int batchMax,
        MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = Clients.idlePush(group, queue.getTopic(), "*", null);
        consumer.setConsumeMessageBatchMaxSize(batchMax);
        consumer.setMaxReconsumeTimes(1);
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    /** A group that comes later reads all that another one is done with. */
    private void ownOffsets() throws Exception {
        MessageQueue queue = create("RulesOwn");
        List<String> bodies = fill(queue, 6);
        for (String group : new String[] {"RulesOwnA", "RulesOwnB"}) {
            Sink sink = new Sink();
            DefaultMQPushConsumer consumer = start(group, queue, 1, sink);
            Check.until(group + " gets all", () -> sink.size() >= bodies.size());
            Check.same(new TreeSet<>(bodies), sink.bodySet(), group + " gets no other");
            Check.same(bodies.size(), sink.size(), group + " gets each once");
            Check.until(group + " commits", () -> Clients.committed(consumer, queue) == bodies.size());
            consumer.shutdown();
        }
    }

    /** A pull brings 32, the listener as many of them as it asks for, each with the queue's ends. */
    private void batches() throws Exception {
        MessageQueue queue = create("RulesBatch");
        List<String> bodies = fill(queue, 40);
        List<List<MessageExt>> batches = new CopyOnWriteArrayList<>();
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = start("RulesBatchG", queue, 12, (messages, context) -> {
            batches.add(new ArrayList<>(messages));
            return sink.consumeMessage(messages, context);
        });
        Check.until("all arrive", () -> sink.size() >= bodies.size());
        List<Integer> sizes = new ArrayList<>();
        batches.forEach(batch -> sizes.add(batch.size()));
        Collections.sort(sizes);
        Check.same(List.of(8, 8, 12, 12), sizes, "batches of a pull of 32 and one of 8");
        for (MessageExt message : sink.messages) {
            Check.same("0", message.getProperty(MessageConst.PROPERTY_MIN_OFFSET), "lowest offset");
            Check.same("40", message.getProperty(MessageConst.PROPERTY_MAX_OFFSET), "next offset");
        }
        consumer.shutdown();
    }

    /** Of a batch only what lies behind the acknowledged index comes again. */
    private void onlyUnacknowledged() throws Exception {
        MessageQueue queue = create("RulesAck");
        List<String> bodies = fill(queue, 8);
        List<String> again = new CopyOnWriteArrayList<>();
        List<String> first = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = start("RulesAckG", queue, 8, (messages, context) -> {
            if (messages.get(0).getReconsumeTimes() == 0) {
                first.addAll(Sink.bodies(messages));
                context.setAckIndex(4);
                context.setDelayLevelWhenNextConsume(1);
            } else {
                again.addAll(Sink.bodies(messages));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Check.until("what was not acknowledged comes again", () -> again.size() >= 3);
        Check.same(bodies, first, "one batch");
        Check.same(new TreeSet<>(bodies.subList(5, 8)), new TreeSet<>(again), "those behind it");
        Check.same(3, again.size(), "each once");
        consumer.shutdown();
    }

    /** A group that is to have no retry queues loses what it sends back, with success. */
    private void swallowed() throws Exception {
        MessageQueue queue = create("RulesSwallow");
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("RulesSwallowG");
        group.setRetryQueueNums(0);
        admin.createAndUpdateSubscriptionGroupConfig(brokerAddress, group);
        fill(queue, 2);
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = start("RulesSwallowG", queue, 1, (messages, context) -> {
            sink.consumeMessage(messages, context);
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        Check.until("both were sent back", () -> Clients.committed(consumer, queue) == 2);
        MessageQueue retries = new MessageQueue("%RETRY%RulesSwallowG", brokerName, 0);
        Check.same(0L, producer.maxOffset(retries), "in the retry topic");
        consumer.shutdown();
    }

    /** After its last try a message is in the dead letters, and comes no more. */
    private void deadLetters() throws Exception {
        MessageQueue queue = create("RulesDead");
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = start("RulesDeadG", queue, 1, (messages, context) -> {
            sink.consumeMessage(messages, context);
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        MessageQueue dead = new MessageQueue("%DLQ%RulesDeadG", brokerName, 0);
        for (int round = 1; round <= 2; round++) {
            long letters = round;
            String body = fillOne(queue, "dead-" + round);
            Check.until("a dead letter", () -> producer.maxOffset(dead) == letters);
            Check.same(2L, sink.bodies().stream().filter(body::equals).count(), body + ": tries");
        }
        Check.same(4, sink.size(), "the first dead letter came no more");
        Check.same(1, sink.messages.get(3).getReconsumeTimes(), "tries that the last one tells of");
        consumer.shutdown();
    }

    private String fillOne(MessageQueue queue, String body) throws Exception {
        Clients.sent(producer.send(Clients.text(queue.getTopic(), "T", body)));
        return body;
    }

    /** The offset committed is that of the first not consumed; the next member begins there. */
    private void slowHead() throws Exception {
        MessageQueue queue = create("RulesHead");
        List<String> bodies = fill(queue, 6);
        CompletableFuture<Void> release = new CompletableFuture<>();
        Sink done = new Sink();
        DefaultMQPushConsumer consumer = start("RulesHeadG", queue, 1, (messages, context) -> {
            if (Sink.text(messages.get(0)).equals(bodies.get(2))) {
                // The client interrupts its threads as it stops: a listener that ended then would
                // send the message back, and its offset could be committed by the same stop.
                release.join();
            }
            return done.consumeMessage(messages, context);
        });
        Check.until("all but the third are consumed", () -> done.size() == 5);
        Check.until("two are committed", () -> Clients.committed(consumer, queue) == 2);
        consumer.shutdown();
        Sink rest = new Sink();
        DefaultMQPushConsumer next = start("RulesHeadG", queue, 1, rest);
        Check.until("the next member gets the rest", () -> rest.size() >= 4);
        Check.same(new TreeSet<>(bodies.subList(2, 6)), rest.bodySet(), "from the third on");
        next.shutdown();
        release.complete(null);
    }

    /** A message whose queue is suspended comes again before the one behind it. */
    private void suspendedQueue() throws Exception {
        MessageQueue queue = create("RulesOrder");
        List<String> bodies = fill(queue, 6);
        List<String> got = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer =
            Clients.idlePush("RulesOrderG", queue.getTopic(), "*", null);
        consumer.setSuspendCurrentQueueTimeMillis(50);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            got.addAll(Sink.bodies(messages));
            boolean suspend = got.size() == 3 || got.size() == 4;
            return suspend ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        List<String> expected = new ArrayList<>(bodies);
        expected.add(3, bodies.get(2));
        expected.add(4, bodies.get(2));
        Check.until("all arrive", () -> got.size() >= expected.size());
        Check.same(expected, got, "the suspended one twice more, then the others");
        consumer.shutdown();
    }

    /** A pull at the end of a queue waits, and gets the next message. */
    private void waitingPull() throws Exception {
        MessageQueue queue = create("RulesWait");
        fill(queue, 1);
        DefaultMQPullConsumer consumer = Clients.idlePull("RulesWaitG");
        consumer.start();
        // The broker takes the pull's own expression, so that no heartbeat has to come before it.
        CompletableFuture<PullResult> waits = CompletableFuture.supplyAsync(() -> {
            try {
                return consumer.pullBlockIfNotFound(queue, "*", 1, 32);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        fillOne(queue, "awaited");
        PullResult result = waits.get();
        Check.same(PullStatus.FOUND, result.getPullStatus(), "status of the pull");
        Check.same(List.of("awaited"), Sink.bodies(result.getMsgFoundList()), "what it brings");
        Check.same(2L, result.getNextBeginOffset(), "where to go on");
        consumer.shutdown();
    }

    /** The longest body and the longest properties are taken, one byte more is not. */
    private void sizes() throws Exception {
        MessageQueue queue = create("RulesSize");
        Clients.sent(producer.send(new Message(queue.getTopic(), new byte[BODY_MAX])));
        refused(new Message(queue.getTopic(), new byte[BODY_MAX + 1]), "a body that is too long");
        Message message = Clients.text(queue.getTopic(), "T", "x");
        message.putUserProperty("p", "x".repeat(Short.MAX_VALUE));
        refused(message, "properties that are too long");
        // Apache's broker answers a send before the message is in its queue.
        Check.until("the longest is in its queue", () -> producer.maxOffset(queue) > 0);
        Check.same(1L, producer.maxOffset(queue), "messages stored");
    }

    private void refused(Message message, String what) throws Exception {
        try {
            producer.send(message);
        } catch (MQBrokerException e) {
            Check.same(MESSAGE_ILLEGAL, e.getResponseCode(), what + ": code");
            return;
        }
        Check.that(false, what + " is refused");
    }
}
