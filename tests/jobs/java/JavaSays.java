import static java.nio.charset.StandardCharsets.UTF_16BE;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.StreamTokenizer;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.HexFormat;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.TreeMap;

/**
 * What the JDK itself makes of some input: a line in, a line out. Words are separated by blanks; texts are hexadecimal.
 *
 * `properties BYTES` -> the pairs that java.util.Properties reads, as KEY=VALUE in order of the keys, or `error`
 * `tokens TEXT` -> the tokens of a StreamTokenizer with the settings of Kafka's JaasConfig: `w:TEXT` with a text, `n` a
 *   number, `c:CODE` another sign
 * `store TYPE PATH PASSWORD KEY-PASSWORD ENTRIES` -> writes a store. ENTRIES: `key:ALIAS:RSA|EC:PKCS8:CERT,CERT...` or
 *   `trusted:ALIAS:CERT`, separated by blanks; keys and certificates are DER
 */
public final class JavaSays {
    private static final HexFormat HEX = HexFormat.of();

    private JavaSays() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            String answer;
            switch (words[0]) {
                case "properties": answer = properties(bytes(words, 1)); break;
                case "tokens": answer = tokens(text(words, 1)); break;
                case "store": answer = store(words); break;
                default: throw new IllegalArgumentException(words[0]);
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static byte[] bytes(String[] words, int at) {
        return words.length <= at ? new byte[0] : HEX.parseHex(words[at]);
    }

    private static String text(String[] words, int at) {
        return new String(bytes(words, at), UTF_16BE);
    }

    private static String hex(String text) {
        byte[] units = new byte[2 * text.length()];  // not getBytes: that replaces half a character
        for (int at = 0; at < text.length(); at++) {
            units[2 * at] = (byte) (text.charAt(at) >> 8);
            units[2 * at + 1] = (byte) text.charAt(at);
        }
        return HEX.formatHex(units);
    }

    private static String properties(byte[] content) throws Exception {
        Properties properties = new Properties();
        try {
            properties.load(new ByteArrayInputStream(content));
        } catch (IllegalArgumentException error) {
            return "error";
        }
        TreeMap<String, String> pairs = new TreeMap<>();
        for (String key : properties.stringPropertyNames()) pairs.put(hex(key), hex(properties.getProperty(key)));
        StringJoiner answer = new StringJoiner(" ");
        pairs.forEach((key, value) -> answer.add(key + "=" + value));
        return answer.toString();
    }

    private static String tokens(String text) throws Exception {
        StreamTokenizer tokenizer = new StreamTokenizer(new StringReader(text));
        tokenizer.slashSlashComments(true);
        tokenizer.slashStarComments(true);
        tokenizer.wordChars('-', '-');
        tokenizer.wordChars('_', '_');
        tokenizer.wordChars('$', '$');
        StringJoiner answer = new StringJoiner(" ");
        while (tokenizer.nextToken() != StreamTokenizer.TT_EOF) {
            if (tokenizer.sval != null) answer.add("w:" + hex(tokenizer.sval));
            else if (tokenizer.ttype == StreamTokenizer.TT_NUMBER) answer.add("n");
            else answer.add("c:" + tokenizer.ttype);
        }
        return answer.toString();
    }

    private static String store(String[] words) throws Exception {
        KeyStore store = KeyStore.getInstance(words[1]);
        store.load(null, null);
        char[] password = text(words, 3).toCharArray();
        char[] keyPassword = text(words, 4).toCharArray();
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (int at = 5; at < words.length; at++) {
            String[] parts = words[at].split(":");
            String[] certificates = parts[parts.length - 1].split(",");
            Certificate[] chain = new Certificate[certificates.length];
            for (int place = 0; place < chain.length; place++) {
                byte[] content = HEX.parseHex(certificates[place]);
                chain[place] = factory.generateCertificate(new ByteArrayInputStream(content));
            }
            if (parts[0].equals("trusted")) {
                store.setCertificateEntry(parts[1], chain[0]);
            } else {
                PKCS8EncodedKeySpec encoded = new PKCS8EncodedKeySpec(HEX.parseHex(parts[3]));
                PrivateKey key = KeyFactory.getInstance(parts[2]).generatePrivate(encoded);
                store.setKeyEntry(parts[1], key, keyPassword, chain);
            }
        }
        try (OutputStream file = Files.newOutputStream(Path.of(text(words, 2)))) {
            store.store(file, password);
        }
        return "ok";
    }
}
