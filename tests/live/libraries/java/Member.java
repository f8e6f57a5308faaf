import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** A member by the Java client: of the classic or the consumer protocol, or a Streams instance. */
public final class Member implements ConsumerRebalanceListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long LOOK_MS = 50;

    private final JsonNode settings;
    private final BlockingQueue<String[]> commands = new LinkedBlockingQueue<>();

    private Member(JsonNode settings) {
        this.settings = settings;
        var listening = new Thread(this::listen);
        listening.setDaemon(true);
        listening.start();
    }

    public static void main(String[] args) throws Exception {
        var member = new Member(JSON.readTree(Path.of(args[0]).toFile()));
        if (member.text("protocol").equals("streams-classic")) {
            member.runStreams();
        } else {
            member.runConsumer();
        }
        member.says("closed", List.of());
    }

    // ---- a consumer

    private void runConsumer() throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", text("servers"));
        config.put("group.id", text("group"));
        config.put("client.id", text("name"));
        config.put("auto.offset.reset", "earliest");
        config.put("auto.commit.interval.ms", text("commit_ms"));
        config.put("metadata.max.age.ms", "2000");
        if (text("protocol").equals("consumer")) {
            config.put("group.protocol", "consumer");
        } else {
            config.put("session.timeout.ms", text("session_ms"));
            config.put("heartbeat.interval.ms", text("heartbeat_ms"));
            if (settings.has("assignor")) {
                config.put("partition.assignment.strategy", text("assignor"));
            }
        }
        if (settings.has("instance")) {
            config.put("group.instance.id", text("instance"));
        }
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(config, bytes, bytes)) {
            consumer.subscribe(JSON.convertValue(settings.get("topics"), List.class), this);
            while (true) {
                consumer.poll(Duration.ofMillis(100));
                String[] command = commands.poll();
                if (command == null) {
                    continue;
                }
                if (command[0].equals("stop")) {
                    return;
                }
                consumer.subscribe(List.of(command[1].split(",")), this);
            }
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        says("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        says("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        says("lost", partitions);
    }

    // ---- a Streams instance: it has no callback for partitions, so that its tasks are looked at

    private void runStreams() throws Exception {
        var builder = new StreamsBuilder();
        for (JsonNode topic : settings.get("topics")) {
            builder.stream(topic.asText()).foreach((key, value) -> { });
        }
        Properties config = new Properties();
        config.put("bootstrap.servers", text("servers"));
        config.put("application.id", text("group"));
        config.put("client.id", text("name"));
        config.put("default.key.serde", Serdes.ByteArraySerde.class);
        config.put("default.value.serde", Serdes.ByteArraySerde.class);
        config.put("commit.interval.ms", text("commit_ms"));
        config.put("num.stream.threads", "1");
        config.put("state.dir", text("folder") + "/state");
        config.put("consumer.session.timeout.ms", text("session_ms"));
        config.put("consumer.heartbeat.interval.ms", text("heartbeat_ms"));
        config.put("consumer.auto.offset.reset", "earliest");
        config.put("metadata.max.age.ms", "2000");
        var streams = new KafkaStreams(builder.build(), config);
        streams.start();
        Collection<TopicPartition> before = List.of();
        while (commands.poll() == null) {
            Collection<TopicPartition> now = streams.metadataForLocalThreads().stream()
                .flatMap(thread -> thread.activeTasks().stream())
                .flatMap(task -> task.topicPartitions().stream())
                .sorted((a, b) -> a.toString().compareTo(b.toString()))
                .toList();
            if (!now.equals(before)) {
                says("owns", now);
                before = now;
            }
            Thread.sleep(LOOK_MS);
        }
        streams.close(Duration.ofSeconds(10));
        says("owns", List.of());
    }

    // ---- what all have

    private String text(String name) {
        return settings.get(name).asText();
    }

    private synchronized void says(String event, Collection<TopicPartition> partitions) {
        var numbered = partitions.stream().map(it -> List.of(it.topic(), it.partition())).toList();
        try {
            var line = JSON.writeValueAsString(Map.of(
                "at", System.currentTimeMillis(), "group", text("group"), "member", text("name"), "event", event,
                "partitions", numbered)) + "\n";
            Files.writeString(Path.of(text("callbacks")), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** The end of the input ends the process without leaving. */
    private void listen() {
        try (var lines = new BufferedReader(new InputStreamReader(System.in, UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                commands.add(line.split(" "));
            }
        } catch (Exception error) {
            error.printStackTrace();
        } finally {
            Runtime.getRuntime().halt(1);
        }
    }
}
