import java.lang.reflect.Field;
import java.util.List;
import org.apache.commons.cli.Option;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * The options of each command of mqadmin: a line each with command, short name, long name, whether it
 * takes a value and whether it is needed, separated by tabs; before them the command alone.
 */
public final class OptionLists {
    private OptionLists() {
    }

    /** Where the commands are: its name differs from release to release. */
    private static Field lists() {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                return field;
            }
        }
        throw new IllegalStateException("no list of commands");
    }

    public static void main(String[] args) throws Exception {
        Field field = lists();
        field.setAccessible(true);
        MQAdminStartup.initCommand();
        for (Object each : (List<?>) field.get(null)) {
            SubCommand command = (SubCommand) each;
            Options options = command.buildCommandlineOptions(new Options());
            System.out.println(command.commandName());
            for (Object found : options.getOptions()) {
                Option option = (Option) found;
                String name = option.getOpt() == null ? "" : option.getOpt();
                System.out.println(String.join("\t", command.commandName(), name,
                    option.getLongOpt(), option.hasArg() ? "value" : "flag",
                    option.isRequired() ? "needed" : ""));
            }
        }
    }
}
