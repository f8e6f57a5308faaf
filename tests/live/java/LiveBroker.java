import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.FileInputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.EligibleLeaderReplicasVersion;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * A broker for tests, in a process of its own: `LiveBroker SERVER.PROPERTIES START.JSON`.
 *
 * A new log directory is formatted first, and the cluster's metadata begins with the topics of the start file: name, id,
 * the partitions' leader epochs, configs. So a broker takes partition folders which it finds there for its own, whoever
 * made them. Then the broker starts, and serves commands (Commands.java). Whatever else its listeners ask for, the one
 * called PLAINTEXT lets the commands in.
 */
public final class LiveBroker implements Commands.Program {
    private static final String CLUSTER_ID = "GroupledgerLiveTests00";

    private final KafkaRaftServer server;
    private final AdminActs acts;
    private final Snapshots snapshots;

    private LiveBroker(KafkaRaftServer server, String address) {
        Admin admin = Admin.create(Map.of("bootstrap.servers", address));
        this.server = server;
        this.acts = new AdminActs(admin);
        this.snapshots = new Snapshots(address, admin);
    }

    public static void main(String[] args) throws Exception {
        Commands commands = Commands.onStandardOutput();
        Properties settings = new Properties();
        try (var in = new FileInputStream(args[0])) {
            settings.load(in);
        }
        JsonNode start = Commands.JSON.readTree(Path.of(args[1]).toFile());
        format(settings, start);
        KafkaRaftServer server = new KafkaRaftServer(KafkaConfig.fromProps(settings), Time.SYSTEM);
        server.startup();
        String address = start.get("address").asText();
        commands.serve(address, new LiveBroker(server, address));
    }

    @Override
    public Object run(JsonNode command) throws Exception {
        return switch (command.get("do").asText()) {
            case "snapshot" -> snapshots.snapshot();
            case "dump" -> dump(command);
            default -> acts.run(command);
        };
    }

    @Override
    public void stop() {
        server.shutdown();
    }

    // ---- a log directory which knows its topics

    private static void format(Properties settings, JsonNode start) throws Exception {
        String directory = settings.getProperty("log.dirs");
        if (Files.exists(Path.of(directory, "meta.properties"))) {
            return;
        }
        int nodeId = Integer.parseInt(settings.getProperty("node.id"));
        new Formatter()
            .setClusterId(CLUSTER_ID)
            .setNodeId(nodeId)
            .setDirectories(List.of(directory))
            .setMetadataLogDirectory(directory)
            .setControllerListenerName(settings.getProperty("controller.listener.names"))
            .setSupportedFeatures(Feature.PRODUCTION_FEATURES)
            // With it a broker which never shut down here counts as one that crashed, and is not elected.
            .setFeatureLevel(EligibleLeaderReplicasVersion.FEATURE_NAME, (short) 0)
            .setPrintStream(System.err)
            .run();
        var metadata = new BootstrapDirectory(directory);
        var records = new ArrayList<>(metadata.read().records());
        for (JsonNode topic : start.get("topics")) {
            addTopic(records, topic, nodeId);
        }
        metadata.writeBinaryFile(BootstrapMetadata.fromRecords(records, "test"));
    }

    private static void addTopic(List<ApiMessageAndVersion> records, JsonNode topic, int nodeId) {
        String name = topic.get("topic").asText();
        Uuid id = Uuid.fromString(topic.get("topic_id").asText());
        records.add(new ApiMessageAndVersion(new TopicRecord().setName(name).setTopicId(id), (short) 0));
        int partition = 0;
        for (JsonNode leaderEpoch : topic.get("leader_epochs")) {
            // Without a leader: the controller elects the broker when it comes, and raises the leader epoch by one.
            records.add(new ApiMessageAndVersion(new PartitionRecord()
                .setTopicId(id)
                .setPartitionId(partition++)
                .setReplicas(List.of(nodeId))
                .setIsr(List.of(nodeId))
                .setLeader(-1)
                .setLeaderEpoch(leaderEpoch.asInt())
                .setDirectories(List.of(DirectoryId.UNASSIGNED)), (short) 1));
        }
        for (Map.Entry<String, JsonNode> config : topic.get("configs").properties()) {
            records.add(new ApiMessageAndVersion(new ConfigRecord()
                .setResourceType(ConfigResource.Type.TOPIC.id())
                .setResourceName(name)
                .setName(config.getKey())
                .setValue(config.getValue().asText()), (short) 0));
        }
    }

    // ---- logs

    private static String dump(JsonNode command) throws Exception {
        PrintStream outBefore = System.out;
        PrintStream errBefore = System.err;
        try (var out = new PrintStream(command.get("to").asText(), UTF_8)) {
            System.setOut(out);
            System.setErr(out); // where the tool tells what does not fit
            List<String> words = new ArrayList<>();
            command.get("words").forEach(word -> words.add(word.asText()));
            DumpLogSegments.main(words.toArray(String[]::new));
        } finally {
            System.setOut(outBefore);
            System.setErr(errBefore);
        }
        return command.get("to").asText();
    }
}
