import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Timer;
import java.util.TimerTask;

/**
 * Reads bodies of DLedger as Apache's members do: up to 0.3.2 by fastjson 1, in 0.3.3 by fastjson 2.
 *
 * LedgerBodies
 *
 * A line of its input is CLASS BASE64, and the answer to it is "read JSON", "nothing" for a null, "unread" if the
 * body cannot be read, or "unwritten" if the object cannot be written again. It leaves at the end of its input, and with
 * status 1 when reading a body does not end.
 */
public final class LedgerBodies {
    /** The interval within which at least one body is read, also on a busy machine, ms. */
    private static final long PATIENCE_MS = 20_000;

    private static Method reader;
    private static Method writer;
    private static volatile String line;

    private LedgerBodies() {
    }

    public static void main(String[] args) throws Exception {
        try {
            Class<?> utils = Class.forName("io.openmessaging.storage.dledger.utils.DLedgerJsonUtils");
            reader = utils.getMethod("parseObject", byte[].class, Class.class);
            writer = utils.getMethod("toJsonBytes", Object.class);
        } catch (ClassNotFoundException e) {
            useFastjson1();
        }
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8.name());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        watch();
        while ((line = input.readLine()) != null) {
            String[] words = line.split(" ", -1);
            Class<?> type = Class.forName("io.openmessaging.storage.dledger.protocol." + words[0]);
            output.println(answer(type, Base64.getDecoder().decode(words[1])));
        }
        output.flush();
    }

    /** Ends this program when it still reads the body that it read an interval ago. */
    private static void watch() {
        new Timer(true).schedule(new TimerTask() {
            private String last;

            @Override
            public void run() {
                if (line != null && line == last) {
                    System.err.println("reading this body does not end: " + line);
                    System.exit(1);
                }
                last = line;
            }
        }, PATIENCE_MS, PATIENCE_MS);
    }

    private static void useFastjson1() throws Exception {
        Class<?> json = Class.forName("com.alibaba.fastjson.JSON");
        Class<?> features = Class.forName("[Lcom.alibaba.fastjson.parser.Feature;");
        Class<?> written = Class.forName("[Lcom.alibaba.fastjson.serializer.SerializerFeature;");
        reader = json.getMethod("parseObject", byte[].class, Type.class, features);
        writer = json.getMethod("toJSONBytes", Object.class, written);
    }

    private static Object call(Method method, Object... arguments) throws Exception {
        Object[] all = arguments;
        if (method.getParameterCount() > arguments.length) {
            all = new Object[arguments.length + 1];
            System.arraycopy(arguments, 0, all, 0, arguments.length);
            Class<?> last = method.getParameterTypes()[arguments.length];
            all[arguments.length] = java.lang.reflect.Array.newInstance(last.getComponentType(), 0);
        }
        return method.invoke(null, all);
    }

    private static String answer(Class<?> type, byte[] data) throws Exception {
        Object body;
        try {
            body = call(reader, data, type);
        } catch (InvocationTargetException e) {
            return "unread";
        }
        if (body == null) {
            return "nothing";
        }
        try {
            return "read " + new String((byte[]) call(writer, body), StandardCharsets.UTF_8);
        } catch (InvocationTargetException e) {
            return "unwritten";
        }
    }
}
