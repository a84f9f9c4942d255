import java.nio.file.Path;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * A round of Apache's Java client through everything a broker's spine has to do.
 *
 * <pre>
 * java SpineRound phase1 NAMESRV STATE_FILE    all parts; leaves uncommitted messages behind
 * java SpineRound phase2 NAMESRV STATE_FILE    after a restart of the broker: goes on from there
 * java SpineRound filter NAMESRV STATE_FILE    SQL92 expressions, where they are enabled; no file
 * java SpineRound cluster NAMESRV STATE_FILE   two brokers in one cluster; no file is used
 * java SpineRound transaction NAMESRV STATE_FILE   transactions; no file is used
 * </pre>
 *
 * The last line is "ok N checks"; a failure prints its stack and ends with status 1. Settings:
 * -Dround.wait_ms (longest wait for one condition), -Dround.redelivery_ms (for a failed message),
 * -Dround.access_key and -Dround.secret_key (requests are signed with them).
 */
public final class SpineRound {
    private SpineRound() {
    }

    public static void main(String[] args) {
        int status = 0;
        try {
            run(args[0], args[1], Path.of(args[2]));
            System.out.println("ok " + Check.count() + " checks");
        } catch (Throwable e) {
            e.printStackTrace(System.out);
            status = 1;
        }
        // The clients leave threads behind that are no daemons.
        System.out.flush();
        Runtime.getRuntime().halt(status);
    }

    private static void run(String phase, String namesrv, Path state) throws Exception {
        Clients.use(namesrv);
        DefaultMQProducer producer = Clients.producer("SpineP");
        if (phase.equals("phase1")) {
            String id = newId();
            RetryRound retry = new RetryRound(id, producer);
            part("retry begins", retry::begin);
            part("send", () -> new SendRound(id, producer).run());
            part("query", () -> new QueryRound(id, producer).run());
            part("group", () -> new GroupRound(id, producer).run());
            part("lite pull", () -> new LitePullRound(id, producer).run());
            part("retry ends", retry::finish);
            part("before restart", () -> new RestartRound(producer, state).before(id));
        } else if (phase.equals("phase2")) {
            part("after restart", () -> new RestartRound(producer, state).after());
        } else if (phase.equals("filter")) {
            String id = newId();
            part("filter", () -> new SqlRound(id, producer).run());
        } else if (phase.equals("cluster")) {
            String id = newId();
            part("cluster", () -> new ClusterRound(id, producer).run());
        } else if (phase.equals("transaction")) {
            String id = newId();
            part("transaction", () -> new TransactionRound(id, producer).run());
        } else {
            throw new IllegalArgumentException("no such phase: " + phase);
        }
        producer.shutdown();
    }

    /** Rounds that begin at the same time have different ids. */
    private static String newId() {
        return Long.toString(System.currentTimeMillis(), 36) + "-" + ProcessHandle.current().pid();
    }

    private interface Part {
        void run() throws Exception;
    }

    private static void part(String name, Part part) throws Exception {
        long start = System.nanoTime();
        part.run();
        System.out.printf("%-16s %5.1f s  %d checks so far%n",
            name, (System.nanoTime() - start) / 1e9, Check.count());
    }
}
