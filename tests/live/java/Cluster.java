import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedWriter;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The cluster as all lives of groups see it: one Admin, one producer, and the journal of what clients did. */
final class Cluster {
    static final String TRANSACTION_TIMEOUT_MS = "60000";

    final Admin admin;
    final Path folder;
    private final Properties connection = new Properties();
    private final KafkaProducer<byte[], byte[]> producer;
    private final BufferedWriter journal;
    private final Map<String, Integer> partitionCounts = new HashMap<>();

    /** `properties` say where the cluster is and how to get in; the journal goes into `folder`. */
    Cluster(Path properties, Path folder) throws Exception {
        this.folder = folder;
        try (var in = new FileInputStream(properties.toFile())) {
            connection.load(in);
        }
        admin = Admin.create(client("live-admin"));
        producer = producer("live-producer");
        journal = Files.newBufferedWriter(folder.resolve("journal.jsonl"), UTF_8);
    }

    /** Settings of a client, with short waits: brokers of the tests come and go. */
    Properties client(String clientId, String... settings) {
        Properties all = new Properties();
        all.putAll(connection);
        all.put("client.id", clientId);
        all.put("request.timeout.ms", "15000");
        all.put("default.api.timeout.ms", "30000");
        all.put("retry.backoff.ms", "50");
        all.put("reconnect.backoff.ms", "50");
        all.put("reconnect.backoff.max.ms", "500");
        all.put("metadata.max.age.ms", "2000");
        for (int i = 0; i < settings.length; i += 2) {
            all.put(settings[i], settings[i + 1]);
        }
        return all;
    }

    private KafkaProducer<byte[], byte[]> producer(String clientId, String... settings) {
        Properties all = client(clientId, settings);
        all.remove("default.api.timeout.ms"); // which producers do not have
        all.put("delivery.timeout.ms", "30000");
        all.put("max.block.ms", "30000");
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Ready for its first transaction: whatever its id had open is aborted. */
    KafkaProducer<byte[], byte[]> transactionalProducer(String id, String timeoutMs) {
        var made = producer(id, "transactional.id", id, "transaction.timeout.ms", timeoutMs);
        try {
            made.initTransactions();
        } catch (RuntimeException error) {
            made.close(Duration.ZERO);
            throw error;
        }
        return made;
    }

    void createTopic(String topic, int partitions) throws Exception {
        try {
            // brokers that roll within seconds, for the sake of the coordinators' logs, need not roll these
            var asked = new NewTopic(topic, Optional.of(partitions), Optional.empty())
                .configs(Map.of("segment.ms", "604800000"));
            admin.createTopics(List.of(asked)).all().get();
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof TopicExistsException)) { // made by an attempt which was not answered
                throw error;
            }
        }
        synchronized (partitionCounts) {
            partitionCounts.put(topic, partitions);
        }
    }

    void deleteTopic(String topic) throws Exception {
        admin.deleteTopics(List.of(topic)).all().get();
    }

    void addPartition(String topic) throws Exception {
        int count = partitionCount(topic) + 1;
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(count))).all().get();
        synchronized (partitionCounts) {
            partitionCounts.put(topic, count);
        }
    }

    int partitionCount(String topic) {
        synchronized (partitionCounts) {
            return partitionCounts.get(topic);
        }
    }

    /** So many records into each partition; they are written when this returns. */
    void produce(String topic, int count) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            for (int partition = 0; partition < partitionCount(topic); partition++) {
                byte[] value = ("value-" + i).getBytes(UTF_8);
                sent.add(producer.send(new ProducerRecord<>(topic, partition, ("key-" + i % 7).getBytes(UTF_8), value)));
            }
        }
        producer.flush();
        for (var it : sent) {
            it.get();
        }
    }

    void setGroupConfig(String group, String... settings) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (int i = 0; i < settings.length; i += 2) {
            changes.add(new AlterConfigOp(new ConfigEntry(settings[i], settings[i + 1]), AlterConfigOp.OpType.SET));
        }
        var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    /** A line of the journal: when, which group, what, and what there is to say of it. */
    void note(String group, String what, Object... facts) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("ts_ms", System.currentTimeMillis());
        line.put("group", group);
        line.put("what", what);
        for (int i = 0; i < facts.length; i += 2) {
            line.put((String) facts[i], facts[i + 1]);
        }
        synchronized (journal) {
            try {
                journal.write(Commands.JSON.writeValueAsString(line));
                journal.newLine();
                journal.flush();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
