import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The queues that the client chooses by a hash of random keys.
 *
 * HashChoices COUNT SEED
 *
 * A line has a key, how many queues there are, and the number of the chosen one, separated by tabs.
 * The last key is one whose hash is Integer.MIN_VALUE.
 */
public final class HashChoices {
    private static final String[] LETTERS = {"a", "z", "A", "Z", "0", "9", "-", ":", "é", "ß", "中",
        "\uFF5E", "\uE000", "😀", "𝒳"};

    private HashChoices() {
    }

    public static void main(String[] args) {
        Random random = new Random(Long.parseLong(args[1]));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (int left = Integer.parseInt(args[0]); left > 1; left--) {
            StringBuilder key = new StringBuilder();
            for (int letters = random.nextInt(12); letters > 0; letters--) {
                key.append(LETTERS[random.nextInt(random.nextBoolean() ? 6 : LETTERS.length)]);
            }
            tell(out, key.toString(), 1 + random.nextInt(20));
        }
        tell(out, "polygenelubricants", 7);
        out.flush();
        System.exit(0);
    }

    private static void tell(PrintStream out, String key, int count) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int id = 0; id < count; id++) {
            queues.add(new MessageQueue("T", "B", id));
        }
        MessageQueueSelector selector = new SelectMessageQueueByHash();
        out.println(key + "\t" + count + "\t" + selector.select(queues, null, key).getQueueId());
    }
}
