import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Says which bits Apache's Bloom filter gives names. A line of the input is ERROR_RATE NAMES and
 * any number of names, UTF-8 in hexadecimal; one of the output is BITS HASHES and for each name
 * its bits with commas between them.
 */
final class BloomTable {
    private BloomTable() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            BloomFilter filter = BloomFilter.createByFn(
                Integer.parseInt(words[0]), Integer.parseInt(words[1]));
            out.print(filter.getM() + " " + filter.getK());
            for (int i = 2; i < words.length; i++) {
                String name = new String(
                    HexFormat.of().parseHex(words[i]), StandardCharsets.UTF_8);
                out.print(" " + Arrays.stream(filter.calcBitPositions(name))
                    .mapToObj(Integer::toString).collect(Collectors.joining(",")));
            }
            out.println();
        }
        out.flush();
    }
}
