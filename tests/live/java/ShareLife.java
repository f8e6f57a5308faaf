import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Share consumers which accept, release, reject, and let locks run out. */
final class ShareLife extends GroupLife {
    private static final int MEMBERS_MAX = 3;
    private static final int PARTITIONS = 2;
    private static final long LOCK_MS = 1_000;
    private static final long LOCKS_OUT_MS = LOCK_MS + 800;
    private static final Duration POLL = Duration.ofMillis(200);
    /** Whoever rests stays a member however long the tests take. */
    private static final String POLL_INTERVAL_MS = "86400000";

    private final boolean readsCommitted;
    private final List<KafkaShareConsumer<byte[], byte[]>> members = new ArrayList<>();
    private int joined;
    private KafkaProducer<byte[], byte[]> producer;

    ShareLife(Cluster cluster, String group, String name, long seed, boolean readsCommitted) {
        super(cluster, group, name, seed);
        this.readsCommitted = readsCommitted;
    }

    @Override
    Map<String, Act> acts() {
        Map<String, Act> acts = new LinkedHashMap<>();
        acts.put("join", this::join);
        acts.put("accept", () -> deliver(100, 0));
        acts.put("mix", () -> deliver(60, 25));
        acts.put("release", () -> deliver(20, 80));
        acts.put("hold", this::hold);
        acts.put("leave", this::leave);
        acts.put("abort data", this::abortData);
        acts.put("alter offsets", this::alterOffsets);
        acts.put("delete offsets", this::deleteOffsets);
        acts.put("configure", this::configure);
        acts.put(SETTLE, () -> sleepMs(2 * LOCKS_OUT_MS)); // what was fetched ahead goes back when its locks run out
        return acts;
    }

    @Override
    List<String> script() {
        return List.of("join", "accept", "mix", "join", "release", "release", "hold", "abort data", "mix", "configure",
            "leave", "leave", "alter offsets", "join", "mix", "release", "mix", SETTLE);
    }

    @Override
    List<String> churn() {
        return List.of("join", "join", "join", "accept", "accept", "mix", "mix", "mix", "mix", "release", "release", "hold",
            "leave", "abort data", "alter offsets", "delete offsets", "configure");
    }

    @Override
    void begin() throws Exception {
        cluster.createTopic(name + ".a", PARTITIONS);
        cluster.setGroupConfig(group, "share.auto.offset.reset", "earliest",
            "share.record.lock.duration.ms", Long.toString(LOCK_MS),
            "share.isolation.level", readsCommitted ? "read_committed" : "read_uncommitted");
    }

    /** Nobody polls: what is delivered would be locked, and its locks run out. Heartbeats go on without, for as long as
     * max.poll.interval.ms. */
    @Override
    void rest() {
        sleepMs(100);
    }

    @Override
    Map<String, Object> facts() {
        return Map.of("members", members.size(), "topics", List.of(name + ".a"));
    }

    private void join() {
        if (members.size() == MEMBERS_MAX) {
            return;
        }
        Properties settings = cluster.client(name + "-" + joined++, "group.id", group,
            "share.acknowledgement.mode", "explicit", "max.poll.records", "10", "fetch.max.wait.ms", "100",
            "max.poll.interval.ms", POLL_INTERVAL_MS);
        var member = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        member.setAcknowledgementCommitCallback((offsets, error) -> {
            if (error != null) {
                cluster.note(group, "acknowledgement refused", "error", error.toString());
            }
        });
        member.subscribe(List.of(name + ".a"));
        members.add(member);
    }

    private void leave() {
        if (!members.isEmpty()) {
            members.remove(random.nextInt(members.size())).close(Duration.ofSeconds(3));
        }
    }

    /** Produce, and acknowledge what comes: so many of a hundred accepted, so many released, the others rejected. */
    private void deliver(int accepted, int released) throws Exception {
        cluster.produce(name + ".a", 4 + random.nextInt(8));
        int delivered = 0;
        for (int round = 0; round < 20 && delivered < 30; round++) {
            for (var member : members) {
                ConsumerRecords<byte[], byte[]> records = member.poll(POLL);
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    int drawn = random.nextInt(100);
                    member.acknowledge(record, drawn < accepted ? AcknowledgeType.ACCEPT
                        : drawn < accepted + released ? AcknowledgeType.RELEASE : AcknowledgeType.REJECT);
                }
                if (!records.isEmpty()) {
                    member.commitSync(Duration.ofSeconds(5));
                }
                delivered += records.count();
            }
        }
    }

    /** Take records, and come back with them when the locks are gone. */
    private void hold() throws Exception {
        cluster.produce(name + ".a", 5);
        for (var member : members) {
            for (int round = 0; round < 10; round++) {
                ConsumerRecords<byte[], byte[]> records = member.poll(POLL);
                if (!records.isEmpty()) {
                    sleepMs(LOCKS_OUT_MS);
                    records.forEach(record -> member.acknowledge(record, AcknowledgeType.ACCEPT));
                    member.commitSync(Duration.ofSeconds(5));
                    return;
                }
            }
        }
    }

    private void abortData() throws Exception {
        if (producer == null) {
            producer = cluster.transactionalProducer(name, Cluster.TRANSACTION_TIMEOUT_MS);
        }
        try {
            for (boolean isCommitted : new boolean[] {false, true}) {
                producer.beginTransaction();
                for (int i = 0; i < 6; i++) {
                    producer.send(new ProducerRecord<>(name + ".a", i % PARTITIONS, null, new byte[] {1}));
                }
                if (isCommitted) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        } catch (Exception error) {
            producer.close(Duration.ZERO);
            producer = null;
            throw error;
        }
    }

    private void leaveAll() {
        while (!members.isEmpty()) {
            leave();
        }
        sleepMs(300);
    }

    private void alterOffsets() throws Exception {
        leaveAll();
        var offset = Map.of(new TopicPartition(name + ".a", 0), (long) random.nextInt(5));
        cluster.admin.alterShareGroupOffsets(group, offset).all().get();
    }

    private void deleteOffsets() throws Exception {
        leaveAll();
        cluster.admin.deleteShareGroupOffsets(group, Set.of(name + ".a")).all().get();
    }

    private void configure() throws Exception {
        cluster.setGroupConfig(group, "share.record.lock.duration.ms", Long.toString(LOCK_MS + random.nextInt(200)));
    }
}
