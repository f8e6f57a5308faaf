import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/** A Kafka Streams application with a repartition topic and a changelog, on the classic or the streams protocol. */
final class StreamsLife extends GroupLife {
    private static final int INSTANCES_MAX = 2;
    private static final long COMMIT_MS = 300;
    private static final long RUNNING_TIMEOUT_MS = 90_000;

    private final boolean isStreamsProtocol;
    private final List<KafkaStreams> instances = new ArrayList<>();
    private int started;

    StreamsLife(Cluster cluster, String group, String name, long seed, boolean isStreamsProtocol) {
        super(cluster, group, name, seed);
        this.isStreamsProtocol = isStreamsProtocol;
    }

    @Override
    Map<String, Act> acts() {
        Map<String, Act> acts = new LinkedHashMap<>();
        acts.put("start", this::startInstance);
        acts.put("process", () -> {
            cluster.produce(name + ".in", 5);
            sleepMs(3 * COMMIT_MS);
        });
        acts.put("close", this::closeInstance);
        acts.put(SETTLE, this::settle);
        return acts;
    }

    @Override
    List<String> script() {
        return List.of("start", SETTLE, "process", "start", SETTLE, "process", "close", SETTLE, "process", SETTLE);
    }

    @Override
    List<String> churn() {
        return List.of("start", "process", "process", "process", "process", "process", "process", "close");
    }

    @Override
    void begin() throws Exception {
        cluster.createTopic(name + ".in", 2);
        cluster.createTopic(name + ".out", 1);
    }

    @Override
    void rest() {
        sleepMs(100);
    }

    @Override
    Map<String, Object> facts() {
        return Map.of("members", instances.size(), "topics", List.of(name + ".in", name + ".out"));
    }

    private void startInstance() {
        if (instances.size() == INSTANCES_MAX) {
            return;
        }
        int number = started++;
        Properties settings = cluster.client(name + "-" + number,
            "application.id", group, "num.stream.threads", "1", "commit.interval.ms", Long.toString(COMMIT_MS),
            "state.dir", cluster.folder.resolve("streams-" + number).toString(),
            "dsl.store.suppliers.class",
            "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers");
        if (isStreamsProtocol) {
            settings.put("group.protocol", "streams");
        } else {
            settings.put("processing.guarantee", "exactly_once_v2");
            settings.put("consumer.session.timeout.ms", "6000");
            settings.put("consumer.heartbeat.interval.ms", "500");
        }
        var builder = new StreamsBuilder();
        builder.stream(name + ".in", Consumed.with(Serdes.String(), Serdes.String()))
            .selectKey((key, value) -> value)
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(name + ".out", Produced.with(Serdes.String(), Serdes.String()));
        var instance = new KafkaStreams(builder.build(), settings);
        instance.setUncaughtExceptionHandler(error -> {
            cluster.note(group, "streams", "error", error.toString());
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        instance.start();
        instances.add(instance);
    }

    private void closeInstance() {
        if (instances.size() == INSTANCES_MAX) {
            instances.remove(random.nextInt(INSTANCES_MAX)).close(Duration.ofSeconds(5));
        }
    }

    private void settle() {
        long deadline = System.currentTimeMillis() + RUNNING_TIMEOUT_MS;
        long since = System.currentTimeMillis();
        while (System.currentTimeMillis() - since < 2_500) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("not running: " + instances.stream().map(KafkaStreams::state).toList());
            }
            if (!instances.stream().allMatch(instance -> instance.state() == KafkaStreams.State.RUNNING)) {
                since = System.currentTimeMillis();
            }
            sleepMs(50);
        }
    }
}
