import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.*;
import java.nio.charset.StandardCharsets;
import java.util.*;

/**
 * Sends messages of every kind a store lays out differently; prints one line for each:
 * kind, topic, queue id, queue offset, offset message ids, unique ids.
 *
 * The files beside it were made so, with small files, by Apache's broker of the version in the path:
 *
 *   tests/interop/peer.py start DIR --set mappedFileSizeCommitLog=8192
 *     --set mappedFileSizeConsumeQueue=400 --set maxHashSlotNum=40 --set maxIndexNum=120
 *     --set maxMessageSize=4096
 *   tests/interop/peer.py mqadmin updateTopic -n NAMESRV -b BROKER -t Golden -r 2 -w 2
 *   tests/interop/peer.py java FillStore.java NAMESRV > sent.txt
 *   tests/interop/peer.py stop DIR
 *
 * and are DIR/store/{checkpoint,commitlog,consumequeue,index}.
 */
public class FillStore {
    public static void main(String[] args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("fill");
        producer.setNamesrvAddr(args[0]);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        for (int n = 0; n < 30; n++) {
            Message message = new Message("Golden", "Tag" + n % 3, "key" + n + " all", ("body " + n).getBytes());
            message.putUserProperty("größe", "消息" + n);
            message.setFlag(n);
            print("plain", producer.send(message, (queues, m, arg) -> queues.get((int) arg % 2), n));
        }
        List<Message> batch = new ArrayList<>();
        for (int n = 0; n < 5; n++) {
            batch.add(new Message("Golden", "TagB", "batch" + n, ("in batch " + n).getBytes()));
        }
        print("batch", producer.send(batch));
        print("compressed", producer.send(new Message("Golden", "TagC", "big", new byte[5000])));
        Message delayed = new Message("Golden", "TagD", "delayed", "delayed".getBytes());
        delayed.setDelayTimeLevel(18);
        print("delayed", producer.send(delayed));
        for (LocalTransactionState state : new LocalTransactionState[] {
            LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW}) {
            Message half = new Message("Golden", "TagT", "half" + state, state.toString().getBytes());
            print("half", producer.sendMessageInTransaction(half, state));
        }
        producer.shutdown();
    }

    static void print(String kind, SendResult result) {
        System.out.println(kind + " " + result.getMessageQueue().getTopic() + " " + result.getMessageQueue().getQueueId()
            + " " + result.getQueueOffset() + " " + result.getOffsetMsgId() + " " + result.getMsgId());
    }
}
