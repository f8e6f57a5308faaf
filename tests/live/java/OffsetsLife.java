import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Offsets without members: a consumer with assign(), Admin which alters and deletes, topics which go and come again. */
final class OffsetsLife extends GroupLife {
    private static final List<String> METADATA = List.of("", "host=a;t=1", "µ→𝄞", "x".repeat(200), "tab\tnew line\n\"quote\"");

    private boolean hasSecondTopic;

    OffsetsLife(Cluster cluster, String group, String name, long seed) {
        super(cluster, group, name, seed);
    }

    @Override
    Map<String, Act> acts() {
        Map<String, Act> acts = new LinkedHashMap<>();
        acts.put("commit", this::commit);
        acts.put("alter", this::alter);
        acts.put("delete offsets", this::deleteOffsets);
        acts.put("delete group", this::deleteGroup);
        acts.put("create topic", this::createTopic);
        acts.put("delete topic", this::deleteTopic);
        acts.put(SETTLE, () -> sleepMs(1_000));
        return acts;
    }

    @Override
    List<String> script() {
        return List.of("commit", "commit", "alter", "delete offsets", "commit", "create topic", "commit", "delete topic",
            "commit", "delete group", "alter", "create topic", "commit", SETTLE);
    }

    @Override
    List<String> churn() {
        return List.of("commit", "commit", "commit", "commit", "commit", "alter", "delete offsets", "delete group",
            "create topic", "delete topic");
    }

    @Override
    void begin() throws Exception {
        cluster.createTopic(name + ".a", 3);
    }

    @Override
    void rest() {
        sleepMs(100);
    }

    @Override
    Map<String, Object> facts() {
        return Map.of("topics", hasSecondTopic ? List.of(name + ".a", name + ".b") : List.of(name + ".a"));
    }

    private void commit() {
        Properties settings = cluster.client(name, "group.id", group, "enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (int i = 0; i < 5; i++) {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                offsets.put(new TopicPartition(name + ".a", 0), offset());
                offsets.put(new TopicPartition(name + ".a", 1 + random.nextInt(2)), offset());
                if (hasSecondTopic) {
                    offsets.put(new TopicPartition(name + ".b", 0), offset());
                }
                consumer.commitSync(offsets);
            }
        }
    }

    /** Forwards, backwards, with a leader epoch or without. */
    private OffsetAndMetadata offset() {
        Optional<Integer> leaderEpoch = random.nextBoolean() ? Optional.of(0) : Optional.empty();
        return new OffsetAndMetadata(random.nextInt(1000), leaderEpoch, any(METADATA));
    }

    private void alter() throws Exception {
        cluster.admin.alterConsumerGroupOffsets(group, Map.of(new TopicPartition(name + ".a", 1), offset())).all().get();
    }

    private void deleteOffsets() throws Exception {
        var gone = Set.of(new TopicPartition(name + ".a", 0), new TopicPartition(name + ".a", 2));
        whereThereIsOne(() -> cluster.admin.deleteConsumerGroupOffsets(group, gone).all().get());
    }

    private void deleteGroup() throws Exception {
        whereThereIsOne(() -> cluster.admin.deleteConsumerGroups(List.of(group)).all().get());
    }

    private static void whereThereIsOne(Act act) throws Exception {
        try {
            act.run();
        } catch (java.util.concurrent.ExecutionException error) {
            if (!(error.getCause() instanceof GroupIdNotFoundException)) {
                throw error;
            }
        }
    }

    private void createTopic() throws Exception {
        if (!hasSecondTopic) {
            cluster.createTopic(name + ".b", 1);
            sleepMs(300); // until brokers know it
            hasSecondTopic = true;
        }
    }

    private void deleteTopic() throws Exception {
        if (hasSecondTopic) {
            hasSecondTopic = false;
            cluster.deleteTopic(name + ".b");
        }
    }
}
