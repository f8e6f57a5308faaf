import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Clients of every kind, in a process of their own: `LiveClients CLIENT.PROPERTIES FOLDER`. Commands say what happens:
 * `play` lets a group of each kind do all it can, then rest; `churn` keeps many groups busy until `calm`.
 */
public final class LiveClients implements Commands.Program {
    private static final String ASSIGNORS = "org.apache.kafka.clients.consumer.";

    /** Makes the life of a group: id, name for topics and clients, seed. */
    private interface Maker {
        GroupLife make(String group, String name, long seed);
    }

    private final Cluster cluster;
    private final Map<String, Maker> kinds = new LinkedHashMap<>();
    private final Map<String, GroupLife> lives = new LinkedHashMap<>();

    private LiveClients(Cluster cluster) {
        this.cluster = cluster;
        kinds.put("classic-range", consumers(classic("RangeAssignor")));
        kinds.put("consumer-uniform", consumers(modern("uniform")));
        kinds.put("share", shares(false));
        kinds.put("transactions", (group, name, seed) -> new Transactions(cluster, group, name, seed));
        kinds.put("classic-cooperative", consumers(classic("CooperativeStickyAssignor")));
        kinds.put("consumer-static", staticConsumers(modern("uniform")));
        kinds.put("share-committed", shares(true));
        kinds.put("offsets", (group, name, seed) -> new OffsetsLife(cluster, group + " größe", name, seed));
        kinds.put("classic-static", staticConsumers(classic("RangeAssignor")));
        kinds.put("consumer-regex",
            (group, name, seed) -> new ConsumerLife(cluster, group, name, seed, modern("range"), false, true));
        kinds.put("classic-roundrobin", consumers(classic("RoundRobinAssignor")));
        // Every other member speaks the other protocol: the group is upgraded, and downgraded again.
        kinds.put("mixed", consumers(joined ->
            (joined % 2 == 0 ? classic("CooperativeStickyAssignor") : modern("uniform")).settings(joined)));
        kinds.put("consumer-range", consumers(modern("range")));
        kinds.put("classic-sticky", consumers(classic("StickyAssignor")));
        kinds.put("streams-classic", (group, name, seed) -> new StreamsLife(cluster, group, name, seed, false));
        kinds.put("streams", (group, name, seed) -> new StreamsLife(cluster, group, name, seed, true));
    }

    public static void main(String[] args) throws Exception {
        Commands commands = Commands.onStandardOutput();
        var clients = new LiveClients(new Cluster(Path.of(args[0]), Path.of(args[1])));
        commands.serve(List.copyOf(clients.kinds.keySet()), clients);
    }

    private static ConsumerLife.Style classic(String assignor) {
        return joined -> Map.of("group.protocol", "classic", "partition.assignment.strategy", ASSIGNORS + assignor,
            "session.timeout.ms", "6000", "heartbeat.interval.ms", "500");
    }

    private static ConsumerLife.Style modern(String assignor) {
        return joined -> Map.of("group.protocol", "consumer", "group.remote.assignor", assignor,
            "client.rack", "rack-" + joined % 2);
    }

    private Maker consumers(ConsumerLife.Style style) {
        return (group, name, seed) -> new ConsumerLife(cluster, group, name, seed, style, false, false);
    }

    private Maker staticConsumers(ConsumerLife.Style style) {
        return (group, name, seed) -> new ConsumerLife(cluster, group, name, seed, style, true, false);
    }

    private Maker shares(boolean readsCommitted) {
        return (group, name, seed) -> new ShareLife(cluster, group, name, seed, readsCommitted);
    }

    @Override
    public Object run(JsonNode command) throws Exception {
        switch (command.get("do").asText()) {
            case "play" -> {
                List<GroupLife> playing = new ArrayList<>();
                for (JsonNode kind : command.get("kinds")) {
                    GroupLife life = life(kind.asText(), command.get("seed").asLong());
                    life.plan(command.has("acts") ? texts(command.get("acts")) : life.script());
                    playing.add(life);
                }
                await(playing);
                fail(playing);
            }
            case "churn" -> {
                List<String> names = List.copyOf(kinds.keySet());
                for (int i = 0; i < command.get("groups").asInt(); i++) {
                    life(names.get(i % names.size()), command.get("seed").asLong())
                        .startChurn(command.get("pause_ms_max").asInt());
                }
            }
            case "calm" -> {
                lives.values().forEach(GroupLife::stopChurn);
                await(lives.values());
                lives.values().forEach(life -> life.plan(List.of(GroupLife.SETTLE)));
                await(lives.values());
            }
            case "report" -> { }
            default -> throw new IllegalArgumentException("no such command: " + command);
        }
        return report();
    }

    /** The next group of a kind: `<kind>-0`, `<kind>-1`, and so on. */
    private GroupLife life(String kind, long seed) {
        int number = 0;
        while (lives.containsKey(kind + "-" + number)) {
            number++;
        }
        String name = kind + "-" + number;
        GroupLife life = kinds.get(kind).make(name, name, seed + name.hashCode());
        lives.put(name, life);
        life.start();
        return life;
    }

    private static List<String> texts(JsonNode node) {
        List<String> texts = new ArrayList<>();
        node.forEach(it -> texts.add(it.asText()));
        return texts;
    }

    private static void await(Iterable<GroupLife> lives) throws InterruptedException {
        for (GroupLife life : lives) {
            life.await();
        }
    }

    private static void fail(List<GroupLife> lives) {
        List<String> lines = new ArrayList<>();
        lives.forEach(life -> life.failed().forEach((act, error) -> lines.add(life.group + ", " + act + ": " + error)));
        if (!lines.isEmpty()) {
            throw new IllegalStateException(String.join("\n", lines));
        }
    }

    private Map<String, Object> report() {
        Map<String, Object> groups = new TreeMap<>();
        lives.forEach((name, life) -> {
            Map<String, Object> facts = new LinkedHashMap<>(life.facts());
            facts.put("kind", name.substring(0, name.lastIndexOf('-')));
            facts.put("done", life.done());
            facts.put("failed", life.failed());
            groups.put(life.group, facts);
        });
        return groups;
    }

    @Override
    public void stop() { }
}
