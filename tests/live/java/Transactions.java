import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Offsets committed by transactions of every end: committed, aborted, fenced, timed out, left open, mixed with others. */
final class Transactions extends GroupLife {
    private static final String LEFT_OPEN_MS = "86400000";
    private static final String TIMES_OUT_MS = "1200";

    private KafkaProducer<byte[], byte[]> producer;
    private KafkaProducer<byte[], byte[]> open;
    private long nextOffset;

    Transactions(Cluster cluster, String group, String name, long seed) {
        super(cluster, group, name, seed);
    }

    /** What a transaction came to, as its client knows; "open" may still become "fenced". */
    static void note(Cluster cluster, String group, String outcome, Map<TopicPartition, OffsetAndMetadata> offsets) {
        Map<String, Long> told = new TreeMap<>();
        offsets.forEach((at, offset) -> told.put(at.toString(), offset.offset()));
        cluster.note(group, "transaction", "outcome", outcome, "offsets", told);
    }

    @Override
    Map<String, Act> acts() {
        Map<String, Act> acts = new LinkedHashMap<>();
        acts.put("commit", () -> transact(true, List.of(group)));
        acts.put("abort", () -> transact(false, List.of(group)));
        acts.put("commit two groups", () -> transact(true, List.of(group, group + "-second")));
        acts.put("plain", this::commitPlainly);
        acts.put("mix", this::mix);
        acts.put("open", this::open);
        acts.put("fence", this::fence);
        acts.put("time out", this::timeOut);
        acts.put(SETTLE, () -> { });
        return acts;
    }

    @Override
    List<String> script() {
        return List.of("commit", "abort", "plain", "commit two groups", "mix", "open", "commit", "fence", "time out",
            "plain", "abort", "open", SETTLE);
    }

    @Override
    List<String> churn() {
        return List.of("commit", "commit", "abort", "abort", "commit two groups", "plain", "mix", "open", "fence", "time out");
    }

    @Override
    void begin() throws Exception {
        cluster.createTopic(name + ".a", 2);
        producer = producer("", Cluster.TRANSACTION_TIMEOUT_MS);
    }

    @Override
    void rest() {
        sleepMs(100);
    }

    @Override
    Map<String, Object> facts() {
        return Map.of("topics", List.of(name + ".a"), "open", open != null);
    }

    private KafkaProducer<byte[], byte[]> producer(String suffix, String timeoutMs) {
        return cluster.transactionalProducer(name + suffix, timeoutMs);
    }

    private Map<TopicPartition, OffsetAndMetadata> offsets() {
        nextOffset++;
        Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
        offsets.put(new TopicPartition(name + ".a", 0), new OffsetAndMetadata(nextOffset, Optional.of(0), "no " + nextOffset));
        if (nextOffset % 2 == 0) {
            offsets.put(new TopicPartition(name + ".a", 1), new OffsetAndMetadata(nextOffset));
        }
        return offsets;
    }

    /** A producer which failed is of no more use. */
    private void renewed(Act act) throws Exception {
        try {
            act.run();
        } catch (Exception error) {
            producer.close(Duration.ZERO);
            producer = producer("", Cluster.TRANSACTION_TIMEOUT_MS);
            throw error;
        }
    }

    private void transact(boolean isCommitted, List<String> groups) throws Exception {
        renewed(() -> {
            producer.beginTransaction();
            var offsets = offsets();
            for (String each : groups) {
                producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(each));
            }
            end(isCommitted);
            for (String each : groups) {
                note(cluster, each, isCommitted ? "committed" : "aborted", offsets);
            }
        });
    }

    private void end(boolean isCommitted) {
        if (isCommitted) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    private void commitPlainly() {
        Properties settings = cluster.client(name + "-plain", "group.id", group, "enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.commitSync(offsets());
        }
    }

    /** A plain commit while a transaction is open on the same partitions: it comes later in the log than the first. */
    private void mix() throws Exception {
        renewed(() -> {
            boolean isCommitted = random.nextBoolean();
            producer.beginTransaction();
            var offsets = offsets();
            producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
            commitPlainly();
            end(isCommitted);
            note(cluster, group, isCommitted ? "committed" : "aborted", offsets);
        });
    }

    private void open() {
        if (open == null) {
            open = producer("-open", LEFT_OPEN_MS);
            open.beginTransaction();
            var offsets = offsets();
            open.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
            note(cluster, group, "open", offsets);
        }
    }

    /** Whoever comes with the same transactional id ends what was open. */
    private void fence() {
        if (open != null) {
            try (var next = producer("-open", LEFT_OPEN_MS)) {
                note(cluster, group, "fenced", Map.of());
            }
            open.close(Duration.ZERO);
            open = null;
        }
    }

    private void timeOut() {
        try (var forgetful = producer("-forgetful", TIMES_OUT_MS)) {
            forgetful.beginTransaction();
            var offsets = offsets();
            forgetful.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
            note(cluster, group, "timed out", offsets);
            sleepMs(4_000); // the coordinator looks every second in these tests
            forgetful.close(Duration.ZERO);
        }
    }
}
