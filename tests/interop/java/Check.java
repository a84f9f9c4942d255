import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;

/** Counts what was asserted and waits for conditions within a bound; a failure ends the run. */
final class Check {
    /** Longest wait for one condition, milliseconds. */
    static final long WAIT_MS = Long.getLong("round.wait_ms", 30_000);
    private static final long POLL_MS = 20;
    private static final AtomicInteger COUNT = new AtomicInteger();

    private Check() {
    }

    static int count() {
        return COUNT.get();
    }

    static void that(boolean holds, String what) {
        COUNT.incrementAndGet();
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void same(Object expected, Object actual, String what) {
        that(Objects.equals(expected, actual), what + ": expected " + expected + ", got " + actual);
    }

    static void until(String what, Callable<Boolean> condition) throws InterruptedException {
        until(what, WAIT_MS, condition);
    }

    /** A condition that throws does not hold yet: a route or an index item may still be missing. */
    static void until(String what, long boundMs, Callable<Boolean> condition)
        throws InterruptedException {
        COUNT.incrementAndGet();
        long end = System.nanoTime() + boundMs * 1_000_000;
        Exception last = null;
        do {
            try {
                if (condition.call()) {
                    return;
                }
                last = null;
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                last = e;
            }
            Thread.sleep(POLL_MS);
        } while (System.nanoTime() < end);
        throw new AssertionError("not within " + boundMs + " ms: " + what, last);
    }
}
