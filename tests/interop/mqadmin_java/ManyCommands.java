import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Several commands of mqadmin in one JVM, as each start costs seconds: `ManyCommands FOLDER`.
 *
 * Standard input has one command a line, its words separated by tabs. What command i prints goes to
 * FOLDER/i.txt, errors included. A command that does not parse ends the run, as mqadmin exits then.
 */
public final class ManyCommands {
    private ManyCommands() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int number = 0;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Path file = Path.of(args[0], number++ + ".txt");
            OutputStream out = Files.newOutputStream(file);
            try (PrintStream print = new PrintStream(out, true, StandardCharsets.UTF_8)) {
                System.setOut(print);
                System.setErr(print);
                MQAdminStartup.main0(line.split("\t"), null);
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
