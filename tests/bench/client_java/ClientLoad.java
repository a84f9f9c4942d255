import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * One load of Apache's client, as client_loads.py is one of ours, with a round for each line of the
 * standard input: ClientLoad MEASURE NAMESRV TOPIC MESSAGES
 */
public final class ClientLoad {
    private static final int BODY_SIZE = 128;
    private static final int ASYNC = 1024;
    private static final int AUTO = 8192;
    private static final int BATCHES = 64;
    private static final int WAITERS = 64;
    private static final int WORKERS = 20;
    /** A round of sends lasts so long before it is measured. */
    private static final long LEAD_NANOS = 500_000_000;

    private static final AtomicLong SENT = new AtomicLong();
    private static final AtomicLong FAILED = new AtomicLong();
    private static long begin;
    private static long end;
    private static long beginCpu;
    private static long before;

    private ClientLoad() {
    }

    public static void main(String[] args) {
        try {
            run(args);
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] args) throws Exception {
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            long nanos = (long) (Double.parseDouble(line) * 1e9);
            if (args[0].startsWith("consume")) {
                read(args[1], args[2], Long.parseLong(args[3]), args[0].equals("consume_batch") ? 32 : 1, nanos);
            } else {
                produce(args[0], args[1], args[2], nanos);
            }
        }
    }

    private static long cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static void print(long messages, long nanos, long cpuNanos, String more) {
        System.out.println("{\"messages\": " + messages + ", \"seconds\": " + nanos / 1e9 + ", \"cpu\": "
            + cpuNanos / 1e9 + ", \"failed\": " + FAILED.get() + more + "}");
    }

    /** Whether the measured time is over; it begins once its time has come. */
    private static synchronized boolean over() {
        long now = System.nanoTime();
        if (beginCpu == 0 && now >= begin) {
            begin = now;
            beginCpu = cpu();
            before = SENT.get();
        }
        return now >= end;
    }

    private static Message message(String topic) {
        byte[] body = new byte[BODY_SIZE];
        Arrays.fill(body, (byte) 'x');
        return new Message(topic, body);
    }

    private static void produce(String kind, String namesrv, String topic, long nanos)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("client_bench_java");
        producer.setNamesrvAddr(namesrv);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setAutoBatch(kind.equals("auto"));
        producer.start();
        producer.send(message(topic));
        SENT.set(0);
        FAILED.set(0);
        beginCpu = 0;
        begin = System.nanoTime() + LEAD_NANOS;
        end = begin + nanos;
        String more = "";
        if (kind.startsWith("sync")) {
            more = waited(producer, topic, kind.equals("sync1") ? 1 : WAITERS);
        } else if (kind.startsWith("batch")) {
            int size = Integer.parseInt(kind.substring(5));
            soon(BATCHES, size, callback -> {
                List<Message> messages = new ArrayList<>(size);
                for (int i = 0; i < size; i++) {
                    messages.add(message(topic));
                }
                producer.send(messages, callback);
            });
        } else {
            soon(kind.equals("auto") ? AUTO : ASYNC, 1,
                callback -> producer.send(message(topic), callback));
        }
        print(SENT.get() - before, System.nanoTime() - begin, cpu() - beginCpu, more);
        producer.shutdown();
    }

    /** One send that is not waited for. */
    private interface Send {
        void send(SendCallback callback) throws Exception;
    }

    private static void soon(int most, int size, Send send) throws Exception {
        Semaphore room = new Semaphore(most);
        while (!over()) {
            room.acquire();
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    SENT.addAndGet(size);
                    room.release();
                }

                @Override
                public void onException(Throwable error) {
                    FAILED.incrementAndGet();
                    room.release();
                }
            };
            try {
                send.send(callback);
            } catch (Exception error) {
                callback.onException(error);
            }
        }
        room.acquire(most);
    }

    private static String waited(DefaultMQProducer producer, String topic, int threads) throws Exception {
        CountDownLatch ended = new CountDownLatch(threads);
        List<Long> took = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            new Thread(() -> {
                long start = System.nanoTime();
                while (!over()) {
                    try {
                        producer.send(message(topic));
                        SENT.incrementAndGet();
                    } catch (Exception error) {
                        FAILED.incrementAndGet();
                    }
                    long now = System.nanoTime();
                    if (threads == 1 && beginCpu != 0) {
                        took.add(now - start);
                    }
                    start = now;
                }
                ended.countDown();
            }).start();
        }
        ended.await();
        took.sort(null);
        return took.isEmpty() ? "" : ", \"p50\": " + took.get(took.size() / 2) / 1e3;
    }

    /** Consumes the messages again and again for a time. */
    private static void read(String namesrv, String topic, long messages, int size, long nanos)
        throws Exception {
        long[] sums = new long[3];
        long until = System.nanoTime() + nanos;
        do {
            consume(namesrv, topic, messages, size, sums);
        } while (System.nanoTime() < until);
        print(sums[0], sums[1], sums[2], "");
    }

    private static void consume(String namesrv, String topic, long messages, int size, long[] sums)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("client_bench_java_" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(WORKERS);
        consumer.setConsumeThreadMax(WORKERS);
        consumer.setConsumeMessageBatchMaxSize(size);
        consumer.subscribe(topic, "*");
        AtomicLong count = new AtomicLong();
        long[] first = new long[3];
        long[] last = new long[2];
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            long total = count.addAndGet(batch.size());
            if (total == batch.size()) {
                first[0] = System.nanoTime();
                first[1] = cpu();
                first[2] = total;
            }
            if (total >= messages && total - batch.size() < messages) {
                last[0] = System.nanoTime();
                last[1] = cpu();
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        consumer.shutdown();
        sums[0] += messages - first[2];
        sums[1] += last[0] - first[0];
        sums[2] += last[1] - first[1];
    }
}
