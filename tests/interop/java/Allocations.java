import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Shares random queues out among random members by each of the client's strategies.
 *
 * Allocations COUNT SEED
 *
 * A line of JSON is a case: a topic, its brokers with the number of their queues, members, rooms, and
 * for each strategy the queues of each member. These are numbers of queues, the first broker's first,
 * in the order of the answer; members are parted by ";". Queues and members are brought into a random
 * order, and are sorted by Java before they are shared out.
 */
public final class Allocations {
    private static final String[] ROOMS = {"hz", "HZ", "sh", "北京", "\uE000", "😀", ""};
    private static final String[] LETTERS = {"a", "b", "z", "A", "B", "Z", "0", "9", "-", "_", ".", "#",
        "é", "ß", "中", "\uFF5E", "\uE000", "😀", "𝒳"};

    private static final int NAMES_COUNT = 400;

    private final Random random;
    /** Of brokers and members. */
    private final List<String> names = new ArrayList<>();

    private Allocations(long seed) {
        random = new Random(seed);
        while (names.size() < NAMES_COUNT) {
            names.add(placed(4));
        }
    }

    public static void main(String[] args) {
        Allocations allocations = new Allocations(Long.parseLong(args[1]));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (int number = Integer.parseInt(args[0]); number > 0; number--) {
            out.println(allocations.one());
        }
        out.flush();
        System.exit(0);
    }

    private String letters(int most) {
        StringBuilder text = new StringBuilder();
        for (int left = 1 + random.nextInt(most); left > 0; left--) {
            // Half of the names are plain.
            text.append(LETTERS[random.nextInt(random.nextBoolean() ? 11 : LETTERS.length)]);
        }
        return text.toString();
    }

    /** A name that begins with a room, or has none, or has one too many. */
    private String placed(int most) {
        String name = letters(most);
        String room = ROOMS[random.nextInt(ROOMS.length)];
        int kind = random.nextInt(10);
        if (kind == 0) {
            return name;
        }
        return kind == 1 ? room + "@" + name + "@" : kind == 2 ? room + "@" : room + "@" + name;
    }

    private static String roomOf(String name) {
        int end = name.indexOf('@');
        return end <= 0 ? "none" : name.substring(0, end);
    }

    private Map<String, Integer> brokers() {
        Map<String, Integer> brokers = new LinkedHashMap<>();
        for (int left = 1 + random.nextInt(4); left > 0; left--) {
            brokers.put(names.get(random.nextInt(names.size())), 1 + random.nextInt(8));
        }
        return brokers;
    }

    private List<String> members() {
        List<String> members = new ArrayList<>();
        for (int left = 1 + random.nextInt(random.nextInt(4) == 0 ? 16 : 6); left > 0; left--) {
            members.add(names.get(random.nextInt(names.size())));
        }
        if (random.nextInt(20) == 0) {
            // A broker names a client that has two connections twice.
            members.add(members.get(0));
        }
        return members;
    }

    private Map<String, AllocateMessageQueueStrategy> strategies(Set<String> rooms,
        List<MessageQueue> queues) {
        Map<String, AllocateMessageQueueStrategy> all = new LinkedHashMap<>();
        AllocateMessageQueueStrategy[] plain = {new AllocateMessageQueueAveragely(),
            new AllocateMessageQueueAveragelyByCircle(), new AllocateMessageQueueConsistentHash()};
        AllocateMessageQueueByMachineRoom machineRoom = new AllocateMessageQueueByMachineRoom();
        machineRoom.setConsumeridcs(rooms);
        AllocateMessageQueueByConfig configured = new AllocateMessageQueueByConfig();
        configured.setMessageQueueList(queues.subList(0, random.nextInt(queues.size() + 1)));
        AllocateMachineRoomNearby nearby = new AllocateMachineRoomNearby(
            plain[random.nextInt(plain.length)], new AllocateMachineRoomNearby.MachineRoomResolver() {
                @Override
                public String brokerDeployIn(MessageQueue queue) {
                    return roomOf(queue.getBrokerName());
                }

                @Override
                public String consumerDeployIn(String clientId) {
                    return roomOf(clientId);
                }
            });
        for (AllocateMessageQueueStrategy each : plain) {
            all.put(each.getName(), each);
        }
        for (AllocateMessageQueueStrategy each : List.of(machineRoom, nearby, configured)) {
            all.put(each.getName(), each);
        }
        return all;
    }

    private String one() {
        String topic = "T" + random.nextInt(10);
        Map<String, Integer> brokers = brokers();
        List<MessageQueue> queues = new ArrayList<>();
        List<String> pairs = new ArrayList<>();
        brokers.forEach((broker, count) -> {
            for (int id = 0; id < count; id++) {
                queues.add(new MessageQueue(topic, broker, id));
            }
            pairs.add("[" + quoted(broker) + "," + count + "]");
        });
        List<String> members = members();
        Set<String> rooms = new HashSet<>(List.of(ROOMS).subList(0, random.nextInt(ROOMS.length)));
        List<MessageQueue> sortedQueues = new ArrayList<>(queues);
        Collections.shuffle(sortedQueues, random);
        Collections.sort(sortedQueues);
        List<String> sortedMembers = new ArrayList<>(members);
        Collections.shuffle(sortedMembers, random);
        Collections.sort(sortedMembers);
        List<String> shares = new ArrayList<>();
        strategies(rooms, queues).forEach((name, strategy) -> {
            List<String> parts = new ArrayList<>();
            for (String member : members) {
                List<String> numbers = new ArrayList<>();
                for (MessageQueue queue : strategy.allocate("G", member, sortedQueues,
                    sortedMembers)) {
                    numbers.add(String.valueOf(queues.indexOf(queue)));
                }
                parts.add(String.join(",", numbers));
            }
            shares.add(quoted(name) + ":" + quoted(String.join(";", parts)));
        });
        return "{\"topic\":" + quoted(topic) + ",\"brokers\":[" + String.join(",", pairs)
            + "],\"members\":" + list(members) + ",\"rooms\":" + list(new ArrayList<>(rooms))
            + ",\"shares\":{" + String.join(",", shares) + "}}";
    }

    private static String list(List<String> texts) {
        List<String> parts = new ArrayList<>();
        texts.forEach(text -> parts.add(quoted(text)));
        return "[" + String.join(",", parts) + "]";
    }

    /** No name has a letter that JSON would escape. */
    private static String quoted(String text) {
        return "\"" + text + "\"";
    }
}
