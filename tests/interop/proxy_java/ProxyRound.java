import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/**
 * A round of Apache's 5.x client through Apache's proxy. Its parts run at the same time, each with
 * topics and groups of its own: most of each is a wait. A line "ok PART", or "failed PART" with a
 * stack trace, tells of each; the last line counts the checks.
 *
 * <p>Usage: ProxyRound ENDPOINTS. The topics and groups of test_proxy.py must be there.
 */
public final class ProxyRound {
    /** A part of the round. */
    interface Part {
        void run(Proxied proxied) throws Exception;
    }

    private ProxyRound() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, Part> parts = new LinkedHashMap<>();
        parts.put("sends", SendParts::sends);
        parts.put("large", SendParts::large);
        parts.put("refusals", SendParts::refusals);
        parts.put("fifo", OrderParts::push);
        parts.put("fifo_simple", OrderParts::simple);
        parts.put("delay", TimeParts::delay);
        parts.put("recall", TimeParts::recall);
        parts.put("transactions", TimeParts::transactions);
        parts.put("invisible", ReceiveParts::invisible);
        parts.put("batches", ReceiveParts::batches);
        parts.put("dead_letters", ReceiveParts::deadLetters);
        parts.put("push", ReceiveParts::push);
        parts.put("tags", FilterParts::tags);
        parts.put("sql", FilterParts::sql);
        Proxied proxied = new Proxied(args[0]);
        CountDownLatch running = new CountDownLatch(parts.size());
        parts.forEach((name, part) -> {
            Thread thread = new Thread(() -> {
                tell(name, part, proxied);
                running.countDown();
            });
            thread.setDaemon(true);
            thread.start();
        });
        running.await();
        System.out.println("ok " + Check.count() + " checks");
        // Some of the client's threads are no daemons, and a closed consumer waits for its polls.
        Runtime.getRuntime().halt(0);
    }

    private static void tell(String name, Part part, Proxied proxied) {
        long begin = System.nanoTime();
        String text = "ok " + name;
        try {
            part.run(proxied);
        } catch (Throwable e) {
            text = "failed " + name + told(e);
        }
        System.out.println(text + " (" + (System.nanoTime() - begin) / 1_000_000 + " ms)");
    }

    /** An error with its causes, and where in the round it was. */
    private static String told(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            text.append(": ").append(each);
        }
        for (StackTraceElement frame : error.getStackTrace()) {
            if (!frame.getClassName().contains(".")) {
                text.append("\n    at ").append(frame);
            }
        }
        return text.toString();
    }
}
