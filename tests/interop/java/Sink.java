import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/** A listener that keeps what it is given, duplicates included. */
class Sink implements MessageListenerConcurrently {
    final List<MessageExt> messages = new CopyOnWriteArrayList<>();

    @Override
    public ConsumeConcurrentlyStatus consumeMessage(
        List<MessageExt> batch, ConsumeConcurrentlyContext context) {
        messages.addAll(batch);
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    int size() {
        return messages.size();
    }

    /** Bodies in order of arrival. */
    List<String> bodies() {
        return bodies(messages);
    }

    static List<String> bodies(Iterable<MessageExt> messages) {
        List<String> bodies = new ArrayList<>();
        for (MessageExt message : messages) {
            bodies.add(text(message));
        }
        return bodies;
    }

    /** Bodies without duplicates, sorted. */
    Set<String> bodySet() {
        return new TreeSet<>(bodies());
    }

    static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
