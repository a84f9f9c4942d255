import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Consumers of every kind with SQL92 expressions. A broker that runs with enablePropertyFilter
 * sends each exactly what its expression is true of.
 */
final class SqlRound {
    private static final String REGIONS = "price BETWEEN 3 AND 6 AND region IN ('eu', 'it''s')";
    private static final String TAGS =
        "(TAGS is not null and TAGS in ('TagA', 'TagB')) and (price IS NULL OR price > 8)";
    private static final int SUBSCRIPTION_PARSE_FAILED = 23;
    private final String topic;
    private final DefaultMQProducer producer;
    private final Set<String> regions = new TreeSet<>();
    private final Set<String> tags = new TreeSet<>();
    private final Set<String> high = new TreeSet<>();
    private int sent;

    /** Refuses each message the first time it comes. */
    private static final class FailOnce extends Sink {
        private final Set<String> seen = ConcurrentHashMap.newKeySet();

        @Override
        public ConsumeConcurrentlyStatus consumeMessage(
            List<MessageExt> batch, ConsumeConcurrentlyContext context) {
            super.consumeMessage(batch, context);
            context.setDelayLevelWhenNextConsume(1);
            return seen.add(text(batch.get(0))) ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }

    SqlRound(String id, DefaultMQProducer producer) {
        this.topic = "SqlRound-" + id;
        this.producer = producer;
    }

    void run() throws Exception {
        send(40);
        refused();
        FailOnce failing = new FailOnce();
        Sink regionSink = new Sink();
        Sink tagSink = new Sink();
        DefaultMQPushConsumer regionConsumer = push("SqlRegions", REGIONS, regionSink);
        DefaultMQPushConsumer tagConsumer = push("SqlTags", TAGS, tagSink);
        DefaultMQPushConsumer retried = push("SqlRetried", REGIONS, failing);
        DefaultLitePullConsumer lite = Clients.litePull("SqlLite");
        lite.subscribe(topic, MessageSelector.bySql("price > 7"));
        Check.until("the first come", () -> regionSink.bodySet().containsAll(regions)
            && tagSink.bodySet().containsAll(tags));
        // Now all of them wait for messages.
        send(40);
        Check.until("regions", () -> regionSink.bodySet().equals(regions));
        Check.until("tags", () -> tagSink.bodySet().equals(tags));
        Set<String> polled = new TreeSet<>();
        Check.until("lite pull", () -> {
            polled.addAll(Sink.bodies(lite.poll(200)));
            return polled.equals(high);
        });
        Check.until("retries come again", () -> failing.size() >= 2 * regions.size());
        Check.same(regions, failing.bodySet(), "what was retried");
        pulled();
        // What came late would be here by now: each group has passed what was sent last.
        Check.same(regions, regionSink.bodySet(), "regions, at the end");
        Check.same(tags, tagSink.bodySet(), "tags, at the end");
        Check.same(regions.size(), regionSink.size(), "regions without duplicates");
        changed(regionConsumer, regionSink);
        collide();
        regionConsumer.shutdown();
        tagConsumer.shutdown();
        retried.shutdown();
        lite.shutdown();
    }

    private DefaultMQPushConsumer push(String group, String expression, Sink sink)
        throws Exception {
        DefaultMQPushConsumer consumer = Clients.idlePush(group + "-" + topic, topic, "*", null);
        consumer.unsubscribe(topic);
        consumer.subscribe(topic, MessageSelector.bySql(expression));
        consumer.registerMessageListener(sink);
        consumer.start();
        return consumer;
    }

    /** A consumer whose expression is wrong does not start, and is told why. */
    private void refused() throws Exception {
        for (String expression : List.of("price >", "price > 'x'", "price BETWEEN 6 AND 3")) {
            DefaultMQPushConsumer consumer = Clients.idlePush("SqlWrong", topic, "*", null);
            consumer.unsubscribe(topic);
            consumer.subscribe(topic, MessageSelector.bySql(expression));
            consumer.registerMessageListener(new Sink());
            int code = 0;
            try {
                consumer.start();
            } catch (MQClientException e) {
                code = e.getResponseCode();
            }
            Check.same(SUBSCRIPTION_PARSE_FAILED, code, "refusal of " + expression);
            consumer.shutdown();
        }
    }

    /** A subscription that is changed while it runs. */
    private void changed(DefaultMQPushConsumer consumer, Sink sink) throws Exception {
        consumer.subscribe(topic, MessageSelector.bySql("late IS NOT NULL"));
        Set<String> late = new TreeSet<>();
        Check.until("the new expression holds", () -> {
            String body = "late-" + late.size();
            late.add(body);
            Message message = Clients.text(topic, "TagC", body);
            message.putUserProperty("late", "yes");
            Clients.sent(producer.send(message));
            Thread.sleep(200);
            return sink.bodySet().stream().anyMatch(late::contains);
        });
    }

    /** Two tags of one hash: the broker sends both, and the client sorts them out. */
    private void collide() throws Exception {
        Check.same("Aa".hashCode(), "BB".hashCode(), "hashes of the tags");
        String collisions = topic + "-tags";
        Clients.sent(producer.send(Clients.text(collisions, "Aa", "before")));
        MessageQueue queue = producer.fetchPublishMessageQueues(collisions).get(0);
        Sink sink = new Sink();
        DefaultMQPushConsumer consumer = Clients.push("SqlTag-" + topic, collisions, "Aa", sink);
        for (String tag : List.of("BB", "Aa", "BB", "Aa")) {
            Clients.sent(producer.send(Clients.text(collisions, tag, tag), queue));
        }
        Check.until("messages of the tag come", () -> sink.size() == 3);
        Check.same(List.of("Aa", "Aa", "before"), sink.bodies().stream().sorted().toList(),
            "messages of one of two tags");
        consumer.shutdown();
    }

    /** Pulls that bring their own expression. */
    @SuppressWarnings("deprecation")
    private void pulled() throws Exception {
        DefaultMQPullConsumer consumer = Clients.idlePull("SqlPulled-" + topic);
        consumer.start();
        MessageQueue any = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        // Until a heartbeat told it the broker's version the client does not pull by expressions.
        Check.until("the client pulls by an expression", () -> {
            consumer.pull(any, MessageSelector.bySql("price > 7"), 0, 32);
            return true;
        });
        Set<String> bodies = new TreeSet<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long offset = 0;
            PullResult result;
            do {
                result = consumer.pull(queue, MessageSelector.bySql("price > 7"), offset, 32);
                offset = result.getNextBeginOffset();
                if (result.getPullStatus() == PullStatus.FOUND) {
                    bodies.addAll(Sink.bodies(result.getMsgFoundList()));
                }
            } while (result.getPullStatus() == PullStatus.FOUND
                || result.getPullStatus() == PullStatus.NO_MATCHED_MSG
                    && offset < consumer.maxOffset(queue));
        }
        Check.same(high, bodies, "pulled");
        consumer.shutdown();
    }

    private void send(int count) throws Exception {
        for (int end = sent + count; sent < end; sent++) {
            String tag = sent % 4 == 3 ? null : "Tag" + (char) ('A' + sent % 4);
            Message message = Clients.text(topic, tag, String.format("%03d", sent));
            String region = sent % 3 == 0 ? "eu" : sent % 3 == 1 ? "it's" : "as";
            message.putUserProperty("region", region);
            boolean hasPrice = sent % 5 != 0;
            int price = sent % 11;
            if (hasPrice) {
                message.putUserProperty("price", Integer.toString(price));
            }
            Clients.sent(producer.send(message));
            String body = Sink.text(extended(message));
            if (hasPrice && price >= 3 && price <= 6 && !region.equals("as")) {
                regions.add(body);
            }
            if (tag != null && !tag.equals("TagC") && (!hasPrice || price > 8)) {
                tags.add(body);
            }
            if (hasPrice && price > 7) {
                high.add(body);
            }
        }
    }

    private static MessageExt extended(Message message) {
        MessageExt extended = new MessageExt();
        extended.setBody(message.getBody());
        return extended;
    }
}
