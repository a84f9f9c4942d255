import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Several commands of mqadmin in one JVM, as each start costs seconds: `ManyCommands FOLDER`.
 *
 * Standard input has one command a line, its words separated by tabs. What command i prints goes to
 * FOLDER/i.txt, errors included. A command that repeats itself is interrupted when it first waits.
 * A command that does not parse ends the run, as mqadmin exits then. One that had no answer or no
 * connection in time is run again: mqadmin waits for a few seconds only, some of which a busy
 * machine takes to start it. The command ONCE is not run again: in a JVM only its first run finds
 * messages.
 */
public final class ManyCommands {
    private static final String COMMANDS = "org.apache.rocketmq.tools.command.";
    private static final String SERVICE = "org.apache.rocketmq.common.ServiceThread";
    private static final List<String> LATE =
        List.of("RemotingTimeoutException", "connect to null failed");
    private static final String ONCE = "queryMsgByUniqueKey";
    private static final int LOOK_MS = 20;
    private static final int ATTEMPTS = 3;

    private ManyCommands() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int number = 0;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            Path file = Path.of(args[0], number++ + ".txt");
            int attempts = 0;
            do {
                OutputStream out = Files.newOutputStream(file);
                try (PrintStream print = new PrintStream(out, true, StandardCharsets.UTF_8)) {
                    System.setOut(print);
                    System.setErr(print);
                    run(new Thread(() -> MQAdminStartup.main0(words, null)));
                }
            } while (++attempts < ATTEMPTS && !words[0].equals(ONCE) && isLate(file));
        }
        Runtime.getRuntime().halt(0);
    }

    private static boolean isLate(Path file) throws IOException {
        String printed = Files.readString(file);
        return LATE.stream().anyMatch(printed::contains);
    }

    /** Run a command, and spare it waiting for nothing. */
    private static void run(Thread command) throws InterruptedException {
        command.start();
        while (command.isAlive()) {
            command.join(LOOK_MS);
            StackTraceElement[] stack = command.getStackTrace();
            if (isRepeating(stack)) {
                command.interrupt();
            }
            for (StackTraceElement frame : stack) {
                if (frame.getClassName().equals(SERVICE)
                    && frame.getMethodName().equals("shutdown")) {
                    wakeEvents();
                    break;
                }
            }
        }
    }

    /** Whether a command sleeps, which those do that go on for ever. */
    private static boolean isRepeating(StackTraceElement[] stack) {
        for (StackTraceElement frame : stack) {
            if (!frame.getClassName().startsWith("java.")) {
                return stack[0].getMethodName().startsWith("sleep")
                    && frame.getClassName().startsWith(COMMANDS);
            }
        }
        return false;
    }

    /** A client that ends waits up to three seconds until its thread of events looks up. */
    private static void wakeEvents() {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().contains("NettyEventExecutor")) {
                thread.interrupt();
            }
        }
    }
}
