import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Clients of the release whose jars it runs with: `ReleaseClients ADDRESS`. A command is a JSON object of texts and whole
 * numbers a line, and is answered by a line. What only newer releases have is called by its name, so that one source
 * compiles with all of them.
 */
public final class ReleaseClients {
    private static final String STRINGS = "org.apache.kafka.common.serialization.String";
    private static final Pattern FIELD = Pattern.compile("\"(\\w+)\": (?:\"([^\"]*)\"|(-?\\d+))");
    private static final long JOIN_TIMEOUT_MS = 60_000;

    private final String address;
    private final Map<String, Member> members = new HashMap<>();

    private ReleaseClients(String address) {
        this.address = address;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        var clients = new ReleaseClients(args[0]);
        answers.println("{\"ok\": \"ready\"}");
        try (var lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                Map<String, String> command = new HashMap<>();
                for (Matcher field = FIELD.matcher(line); field.find();) {
                    command.put(field.group(1), field.group(2) != null ? field.group(2) : field.group(3));
                }
                answers.println(clients.answer(command));
                if (command.get("do").equals("stop")) {
                    break;
                }
            }
        }
        Runtime.getRuntime().halt(0); // members vanish
    }

    private String answer(Map<String, String> command) {
        try {
            return "{\"ok\": " + run(command) + "}";
        } catch (Throwable error) {
            error.printStackTrace();
            return "{\"error\": \"" + error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}";
        }
    }

    private String run(Map<String, String> command) throws Exception {
        switch (command.get("do")) {
            case "produce":
                produce(command.get("topic"), number(command, "partitions"), number(command, "count"));
                return "null";
            case "join":
                return join(command);
            case "consume":
                return members.get(command.get("client")).consumeAndCommit(number(command, "count"));
            case "leave":
                members.remove(command.get("client")).leave();
                return "null";
            case "commit":
                commit(command);
                return "null";
            case "committed":
                return committed(command);
            case "transact":
                transact(command);
                return "null";
            default:
                return "null";
        }
    }

    private static int number(Map<String, String> command, String name) {
        return Integer.parseInt(command.get(name));
    }

    private Properties client(String... settings) {
        var all = new Properties();
        all.put("bootstrap.servers", address);
        for (int i = 0; i < settings.length; i += 2) {
            all.put(settings[i], settings[i + 1]);
        }
        return all;
    }

    private KafkaProducer<String, String> producer(String... settings) {
        var all = client(settings);
        all.put("key.serializer", STRINGS + "Serializer");
        all.put("value.serializer", STRINGS + "Serializer");
        return new KafkaProducer<>(all);
    }

    private KafkaConsumer<String, String> consumer(String group, String... settings) {
        var all = client(settings);
        all.put("group.id", group);
        all.put("enable.auto.commit", "false");
        all.put("auto.offset.reset", "earliest");
        all.put("key.deserializer", STRINGS + "Deserializer");
        all.put("value.deserializer", STRINGS + "Deserializer");
        return new KafkaConsumer<>(all);
    }

    private void produce(String topic, int partitions, int count) throws Exception {
        try (var producer = producer()) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, i % partitions, "key-" + i, "value-" + i)).get();
            }
        }
    }

    private String join(Map<String, String> command) throws Exception {
        String protocol = command.get("protocol");
        String[] settings = "classic".equals(protocol)
            ? new String[] {"client.id", command.get("client"), "session.timeout.ms", "10000", "heartbeat.interval.ms", "500"}
            : new String[] {"client.id", command.get("client"), "group.protocol", protocol};
        var member = new Member(consumer(command.get("group"), settings), command.get("topic"));
        members.put(command.get("client"), member);
        return member.awaitAssignment();
    }

    private void commit(Map<String, String> command) {
        try (var consumer = consumer(command.get("group"))) {
            var place = new TopicPartition(command.get("topic"), number(command, "partition"));
            consumer.assign(List.of(place));
            consumer.commitSync(Map.of(place, new OffsetAndMetadata(number(command, "offset"), "written by hand")));
        }
    }

    /** The committed offset of each partition, -1 for none. */
    private String committed(Map<String, String> command) throws Exception {
        var offsets = new StringBuilder();
        try (var consumer = consumer(command.get("group"))) {
            for (int partition = 0; partition < number(command, "partitions"); partition++) {
                OffsetAndMetadata found = committed(consumer, new TopicPartition(command.get("topic"), partition));
                offsets.append(partition == 0 ? "" : ", ").append(found == null ? -1 : found.offset());
            }
        }
        return "[" + offsets + "]";
    }

    private static OffsetAndMetadata committed(KafkaConsumer<?, ?> consumer, TopicPartition place) throws Exception {
        try {
            Method ofMany = KafkaConsumer.class.getMethod("committed", Set.class);
            return (OffsetAndMetadata) ((Map<?, ?>) ofMany.invoke(consumer, Set.of(place))).get(place);
        } catch (NoSuchMethodException error) { // before 2.4
            return (OffsetAndMetadata) KafkaConsumer.class.getMethod("committed", TopicPartition.class).invoke(consumer, place);
        }
    }

    private void transact(Map<String, String> command) throws Exception {
        var place = new TopicPartition(command.get("topic"), number(command, "partition"));
        try (var producer = producer("transactional.id", command.get("id"))) {
            KafkaProducer.class.getMethod("initTransactions").invoke(producer);
            KafkaProducer.class.getMethod("beginTransaction").invoke(producer);
            var offsets = Map.of(place, new OffsetAndMetadata(number(command, "offset"), "in a transaction"));
            try {
                KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class)
                    .invoke(producer, offsets, command.get("group"));
            } catch (NoSuchMethodException error) { // since 4.0
                Class<?> metadata = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
                KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, metadata)
                    .invoke(producer, offsets, metadata.getConstructor(String.class).newInstance(command.get("group")));
            }
            KafkaProducer.class.getMethod(command.get("end") + "Transaction").invoke(producer);
        }
    }

    /** A member which a thread of its own polls for: before 0.10.1 nothing else beats its heart. */
    private static final class Member {
        private final KafkaConsumer<String, String> consumer;
        private final Thread poller = new Thread(this::poll, "poller");
        private boolean isLeaving;
        private int read;

        Member(KafkaConsumer<String, String> consumer, String topic) {
            this.consumer = consumer;
            consumer.subscribe(List.of(topic));
            poller.setDaemon(true);
            poller.start();
        }

        private void poll() {
            while (true) {
                synchronized (this) {
                    if (isLeaving) {
                        return;
                    }
                    try {
                        read += count();
                    } catch (Exception error) {
                        error.printStackTrace();
                    }
                }
                sleep();
            }
        }

        private int count() throws Exception {
            Object records;
            try {
                records = KafkaConsumer.class.getMethod("poll", Duration.class).invoke(consumer, Duration.ofMillis(50));
            } catch (NoSuchMethodException error) { // before 2.0
                records = KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 50L);
            }
            return ((org.apache.kafka.clients.consumer.ConsumerRecords<?, ?>) records).count();
        }

        String awaitAssignment() {
            for (long end = System.currentTimeMillis() + JOIN_TIMEOUT_MS; System.currentTimeMillis() < end; sleep()) {
                synchronized (this) {
                    if (!consumer.assignment().isEmpty()) {
                        var partitions = new TreeSet<Integer>();
                        consumer.assignment().forEach(it -> partitions.add(it.partition()));
                        return partitions.toString();
                    }
                }
            }
            throw new IllegalStateException("no partition was assigned in time");
        }

        /** Until so many records were read; commits the positions, and gives the number of records. */
        synchronized String consumeAndCommit(int count) throws Exception {
            for (long end = System.currentTimeMillis() + JOIN_TIMEOUT_MS; read < count && System.currentTimeMillis() < end;) {
                read += count();
            }
            consumer.commitSync();
            return Integer.toString(read);
        }

        synchronized void leave() {
            isLeaving = true;
            consumer.close();
        }

        private static void sleep() {
            try {
                Thread.sleep(50);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
