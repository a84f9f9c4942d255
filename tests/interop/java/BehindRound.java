import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.sysflag.PullSysFlag;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PullMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetResponseHeader;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What a broker knows of where clients are: java BehindRound NAMESRV BROKER NAME broadcast|behind.
 * Members of broadcast groups change between a proxy and the broker; or, for three minutes and
 * more, groups are far behind with disableConsumeIfConsumerReadSlowly, and a threshold of 10,000.
 */
public final class BehindRound {
    private static final int COUNT = 20;
    private static final int SIZE = 1024;
    private static final int FOR_BROADCAST = 1;
    /** The broker looks each three minutes. */
    private static final long LOOK_MS = 400_000;
    private final String id = Long.toString(System.currentTimeMillis(), 36);
    private final String broker;
    private final String brokerName;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(Clients.SEND_TIMEOUT_MS);
    private final DefaultMQProducer producer;

    private BehindRound(String namesrv, String broker, String brokerName) throws Exception {
        this.broker = broker;
        this.brokerName = brokerName;
        Clients.use(namesrv);
        producer = Clients.producer("BehindP");
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName(Clients.instance());
        admin.setMqClientApiTimeout(Clients.SEND_TIMEOUT_MS);
        admin.start();
    }

    public static void main(String[] args) {
        int status = 0;
        try {
            BehindRound round = new BehindRound(args[0], args[1], args[2]);
            if (args[3].equals("behind")) {
                round.farBehind();
            } else {
                round.asItSays();
                round.fromProxyToBroker();
                round.fromBrokerToProxy();
                round.aProxyThatDoesNotKnow();
                round.leastOffset();
            }
            System.out.println("ok " + Check.count() + " checks");
        } catch (Throwable e) {
            e.printStackTrace(System.out);
            status = 1;
        }
        System.out.flush();
        Runtime.getRuntime().halt(status);
    }

    /** Code of an answer to a pull, and where to go on. */
    private record Answer(int code, long next) {
    }

    private static Answer found(long next) {
        return new Answer(ResponseCode.SUCCESS, next);
    }

    private static Answer moved(long next) {
        return new Answer(ResponseCode.PULL_OFFSET_MOVED, next);
    }

    /** A member of a group with a connection of its own, and the proxy's pulls on it. */
    private final class Member {
        private final NettyRemotingClient link = new NettyRemotingClient(new NettyClientConfig());
        private final String group;
        private final String topic;

        Member(String group, String topic) {
            this.group = group + "-" + id;
            this.topic = topic;
            link.start();
        }

        Member join(String client, MessageModel model) throws Exception {
            ConsumerData consumer = new ConsumerData();
            consumer.setGroupName(group);
            consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
            consumer.setMessageModel(model);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
            consumer.setSubscriptionDataSet(Set.of(new SubscriptionData(topic, "*")));
            HeartbeatData heartbeat = new HeartbeatData();
            heartbeat.setClientID(client);
            heartbeat.setProducerDataSet(new HashSet<>());
            heartbeat.setConsumerDataSet(Set.of(consumer));
            RemotingCommand request =
                RemotingCommand.createRequestCommand(RequestCode.HEART_BEAT, null);
            request.setBody(heartbeat.encode());
            Check.same(ResponseCode.SUCCESS, ask(request).getCode(), client + " joins");
            return this;
        }

        private RemotingCommand ask(RemotingCommand request) throws Exception {
            return link.invokeSync(broker, request, Clients.SEND_TIMEOUT_MS);
        }

        Answer pull(long offset) throws Exception {
            return pull(offset, null);
        }

        /** Ask for one message; for a client behind a proxy, if one is named. */
        Answer pull(long offset, String proxied) throws Exception {
            PullMessageRequestHeader header = new PullMessageRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(topic);
            header.setQueueId(0);
            header.setQueueOffset(offset);
            header.setMaxMsgNums(1);
            header.setSysFlag(PullSysFlag.buildSysFlag(false, false, true, false));
            header.setCommitOffset(0L);
            header.setSuspendTimeoutMillis(0L);
            header.setSubscription("*");
            header.setSubVersion(0L);
            if (proxied != null) {
                header.setRequestSource(FOR_BROADCAST);
                header.setProxyFrowardClientId(proxied);
            }
            RemotingCommand reply =
                ask(RemotingCommand.createRequestCommand(RequestCode.PULL_MESSAGE, header));
            if (reply.getCode() == ResponseCode.NO_PERMISSION) {
                return new Answer(reply.getCode(), -1);
            }
            PullMessageResponseHeader answer = (PullMessageResponseHeader)
                reply.decodeCommandCustomHeader(PullMessageResponseHeader.class);
            return new Answer(reply.getCode(), answer.getNextBeginOffset());
        }

        /** What the broker has committed for the whole of a broadcast group. */
        long committed() throws Exception {
            QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
            header.setConsumerGroup(group + "@broadcast");
            header.setTopic(topic);
            header.setQueueId(0);
            RemotingCommand reply =
                ask(RemotingCommand.createRequestCommand(RequestCode.QUERY_CONSUMER_OFFSET, header));
            if (reply.getCode() != ResponseCode.SUCCESS) {
                return -1;
            }
            return ((QueryConsumerOffsetResponseHeader) reply.decodeCommandCustomHeader(
                QueryConsumerOffsetResponseHeader.class)).getOffset();
        }
    }

    private String fill(String name) throws Exception {
        String topic = name + "-" + id;
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(topic, 1, 1));
        Check.until("route of " + topic,
            () -> producer.fetchPublishMessageQueues(topic).size() == 1);
        for (int number = 0; number < COUNT; number++) {
            Clients.sent(producer.send(new Message(topic, new byte[SIZE])));
        }
        MessageQueue queue = new MessageQueue(topic, brokerName, 0);
        Check.until("all can be pulled", () -> producer.maxOffset(queue) == COUNT);
        return topic;
    }

    /** A client that knows where it is is served from there, both ways. */
    private void asItSays() throws Exception {
        String topic = fill("BehindSays");
        Member member = new Member("Says", topic).join("c", MessageModel.BROADCASTING);
        Check.same(found(4), member.pull(3), "the broker's");
        Check.same(found(5), member.pull(4), "its next");
        Check.same(found(8), member.pull(7, "d"), "the proxy's");
        Check.same(found(9), member.pull(8, "d"), "its next");
        Member other = new Member("Shares", topic).join("e", MessageModel.CLUSTERING);
        Check.same(found(4), other.pull(3), "a group that shares queues");
    }

    /** Who was behind a proxy is sent to where it was, once. */
    private void fromProxyToBroker() throws Exception {
        Member member =
            new Member("ToBroker", fill("BehindToBroker")).join("c", MessageModel.BROADCASTING);
        Check.same(found(12), member.pull(11, "c"), "behind the proxy");
        Check.same(moved(11), member.pull(2), "it comes to the broker");
        Check.same(found(12), member.pull(11), "it goes on");
        Check.same(found(13), member.pull(12), "and on");
    }

    /** The other way, whatever the proxy asks for; it never goes back. */
    private void fromBrokerToProxy() throws Exception {
        Member member =
            new Member("ToProxy", fill("BehindToProxy")).join("c", MessageModel.BROADCASTING);
        Check.same(found(7), member.pull(6), "at the broker");
        Check.same(found(6), member.pull(5), "a step back");
        Check.same(moved(6), member.pull(15, "c"), "it comes to the proxy");
        Check.same(found(7), member.pull(6, "c"), "it goes on");
    }

    /** It is told where the client was, else where the queue begins. */
    private void aProxyThatDoesNotKnow() throws Exception {
        Member member = new Member("Unknown", fill("BehindUnknown"));
        Check.same(moved(0), member.pull(-1, "new"), "a new client");
        Check.same(found(10), member.pull(9, "c"), "another one");
        Check.same(moved(9), member.pull(-1, "c"), "it comes again");
    }

    /** The least offset of all clients is committed for the group, and new ones begin there. */
    private void leastOffset() throws Exception {
        Member member =
            new Member("Least", fill("BehindLeast")).join("b", MessageModel.BROADCASTING);
        Check.same(found(10), member.pull(9, "a"), "behind the proxy");
        Check.same(found(5), member.pull(4), "at the broker");
        Check.until("the least is committed", () -> member.committed() == 4);
        Check.same(moved(4), member.pull(-1, "new"), "a new client");
    }

    /** Who is further behind than the threshold gets nothing until it is allowed again. */
    private void farBehind() throws Exception {
        String topic = fill("BehindFar");
        Member slow = new Member("Slow", topic);
        Member quick = new Member("Quick", topic);
        List<Member> both = List.of(slow, quick);
        Check.until("it is stopped", LOOK_MS, () -> {
            for (Member member : both) {
                member.join("c", MessageModel.CLUSTERING);
            }
            Answer answer = slow.pull(0);
            if (answer.code() == ResponseCode.NO_PERMISSION) {
                return true;
            }
            Check.same(found(1), answer, "from the beginning");
            Check.same(found(COUNT - 1), quick.pull(COUNT - 2), "from the end");
            Thread.sleep(1000);
            return false;
        });
        Check.that(!config(slow).isConsumeEnable(), "its configuration says so");
        Check.that(config(quick).isConsumeEnable(), "the other one is not stopped");
        Check.same(found(COUNT), quick.pull(COUNT - 1), "it goes on");
        SubscriptionGroupConfig allowed = config(slow);
        allowed.setConsumeEnable(true);
        admin.createAndUpdateSubscriptionGroupConfig(broker, allowed);
        Check.same(found(COUNT), slow.pull(COUNT - 1), "it may consume again");
    }

    private SubscriptionGroupConfig config(Member member) throws Exception {
        return admin.examineSubscriptionGroupConfig(broker, member.group);
    }
}
