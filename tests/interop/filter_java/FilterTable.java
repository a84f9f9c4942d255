import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Says what Apache's filter library makes of expressions. Each line of the input is an expression
 * and any number of property maps; texts are UTF-8 in hexadecimal: EXPRESSION[ NAME=VALUE,...]...
 * with a blank before each map. Each line of the output has a word for each map: TRUE, FALSE, NULL
 * or ERROR; or the one word REFUSED.
 */
final class FilterTable {
    private FilterTable() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] words) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text(words[0]));
        } catch (Throwable refused) {
            return "REFUSED";
        }
        StringBuilder answers = new StringBuilder();
        for (int i = 1; i < words.length; i++) {
            answers.append(i > 1 ? " " : "").append(value(expression, properties(words[i])));
        }
        return answers.toString();
    }

    private static String value(Expression expression, Map<String, String> properties) {
        try {
            Object value = expression.evaluate(new MessageEvaluationContext(properties));
            if (value == null) {
                return "NULL";
            }
            return value instanceof Boolean ? value.toString().toUpperCase() : "OTHER";
        } catch (Throwable error) {
            return "ERROR";
        }
    }

    private static Map<String, String> properties(String pairs) {
        Map<String, String> properties = new HashMap<>();
        for (String pair : pairs.split(",")) {
            int at = pair.indexOf('=');
            if (at >= 0) {
                properties.put(text(pair.substring(0, at)), text(pair.substring(at + 1)));
            }
        }
        return properties;
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
