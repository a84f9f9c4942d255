import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.Compressor;
import org.apache.rocketmq.common.compression.CompressorFactory;

/**
 * Compresses bodies as the client does, or decompresses what another client made.
 *
 * Compression write
 * Compression read FILE
 *
 * Lines of the first have a type, a level, a size and the compressed body in base 64, separated by
 * spaces; the body has as many bytes, which are the numbers from 0 on with a blank after each. Lines of
 * FILE have a type and a compressed body, and each is answered with the size and the CRC-32 of its body.
 */
public final class Compression {
    private static final int[] SIZES = {0, 1, 5000, 20_000};
    private static final int[] LEVELS = {1, 9};

    private Compression() {
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            write();
        } else {
            read(Path.of(args[1]));
        }
        System.exit(0);
    }

    private static byte[] body(int size) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        for (int number = 0; body.size() < size; number++) {
            byte[] text = (number + " ").getBytes(StandardCharsets.US_ASCII);
            body.write(text, 0, Math.min(text.length, size - body.size()));
        }
        return body.toByteArray();
    }

    private static void write() throws Exception {
        for (CompressionType type : CompressionType.values()) {
            Compressor compressor = CompressorFactory.getCompressor(type);
            for (int level : LEVELS) {
                for (int size : SIZES) {
                    System.out.println(type + " " + level + " " + size + " "
                        + Base64.getEncoder().encodeToString(compressor.compress(body(size), level)));
                }
            }
        }
    }

    private static void read(Path file) throws Exception {
        for (String line : Files.readAllLines(file)) {
            String[] words = line.split(" ");
            Compressor compressor = CompressorFactory.getCompressor(CompressionType.of(words[0]));
            byte[] body = compressor.decompress(Base64.getDecoder().decode(words[1]));
            CRC32 sum = new CRC32();
            sum.update(body);
            System.out.println(body.length + " " + sum.getValue());
        }
    }
}
