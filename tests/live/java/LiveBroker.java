import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ClassicGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.ReadShareGroupStateRequestData;
import org.apache.kafka.common.message.ReadShareGroupStateResponseData;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ReadShareGroupStateRequest;
import org.apache.kafka.common.requests.ReadShareGroupStateResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.EligibleLeaderReplicasVersion;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * A broker for tests, in a process of its own: `LiveBroker SERVER.PROPERTIES TOPICS.JSON`.
 *
 * A new log directory is formatted first, and the cluster's metadata begins with the topics of the file: name, id, the
 * partitions' leader epochs, configs. So a broker takes partition folders which it finds there for its own, whoever
 * made them. Then the broker starts, and commands are read from standard input, one JSON object a line; each is
 * answered by one line on standard output: `{"ok": ...}` or `{"error": "..."}`. The end of the input ends the process
 * at once: whoever started it, and died, leaves no broker behind.
 */
public final class LiveBroker {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int NODE_ID = 1;
    private static final String CONSUMER_OFFSETS = "__consumer_offsets";
    private static final Set<String> COORDINATOR_TOPICS =
        Set.of(CONSUMER_OFFSETS, "__share_group_state", "__transaction_state");
    private static final String CLUSTER_ID = "GroupledgerLiveTests00";

    private final String address;
    private final Admin admin;

    private LiveBroker(String address) {
        this.address = address;
        this.admin = Admin.create(Map.of("bootstrap.servers", address));
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // a library which prints must not look like an answer
        Properties settings = new Properties();
        try (var in = new FileInputStream(args[0])) {
            settings.load(in);
        }
        format(settings, JSON.readTree(Path.of(args[1]).toFile()));
        KafkaRaftServer server = new KafkaRaftServer(KafkaConfig.fromProps(settings), Time.SYSTEM);
        server.startup();
        LiveBroker broker = new LiveBroker(settings.getProperty("advertised.listeners").replace("PLAINTEXT://", ""));
        answer(answers, Map.of("ok", broker.address));
        try (var commands = new BufferedReader(new InputStreamReader(System.in, UTF_8))) {
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                JsonNode command = JSON.readTree(line);
                if (command.get("do").asText().equals("stop")) {
                    server.shutdown();
                    answer(answers, Map.of("ok", "stopped"));
                    break;
                }
                answer(answers, broker.run(command));
            }
        } finally {
            Runtime.getRuntime().halt(0);
        }
    }

    private static void answer(PrintStream answers, Map<String, ?> facts) throws Exception {
        answers.println(JSON.writeValueAsString(facts));
        answers.flush();
    }

    private Map<String, ?> run(JsonNode command) {
        try {
            return Map.of("ok", switch (command.get("do").asText()) {
                case "snapshot" -> snapshot();
                case "dump" -> dump(command);
                default -> throw new IllegalArgumentException("no such command: " + command);
            });
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            cause.printStackTrace();
            return Map.of("error", cause.toString());
        }
    }

    // ---- a log directory which knows its topics

    private static void format(Properties settings, JsonNode topics) throws Exception {
        String directory = settings.getProperty("log.dirs");
        if (Files.exists(Path.of(directory, "meta.properties"))) {
            return;
        }
        new Formatter()
            .setClusterId(CLUSTER_ID)
            .setNodeId(NODE_ID)
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
        for (JsonNode topic : topics) {
            addTopic(records, topic);
        }
        metadata.writeBinaryFile(BootstrapMetadata.fromRecords(records, "test"));
    }

    private static void addTopic(List<ApiMessageAndVersion> records, JsonNode topic) {
        String name = topic.get("topic").asText();
        Uuid id = Uuid.fromString(topic.get("topic_id").asText());
        records.add(new ApiMessageAndVersion(new TopicRecord().setName(name).setTopicId(id), (short) 0));
        int partition = 0;
        for (JsonNode leaderEpoch : topic.get("leader_epochs")) {
            // Without a leader: the controller elects the broker when it comes, and raises the leader epoch by one.
            records.add(new ApiMessageAndVersion(new PartitionRecord()
                .setTopicId(id)
                .setPartitionId(partition++)
                .setReplicas(List.of(NODE_ID))
                .setIsr(List.of(NODE_ID))
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

    // ---- what Admin tells of groups

    /** All groups, and the ends of the coordinators' logs before and after they were asked for. */
    private Map<String, Object> snapshot() throws Exception {
        awaitGroupCoordinators();
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("ts0_ms", System.currentTimeMillis());
        facts.put("leo_before", logEnds());
        facts.put("groups", groups());
        facts.put("leo_after", logEnds());
        facts.put("ts1_ms", System.currentTimeMillis());
        return facts;
    }

    /**
     * Wait until every partition of __consumer_offsets is loaded. A list of groups leaves out, without a word, those
     * of partitions which are not; but who asks for the offsets of one group is told to try again. So one group, which
     * need not exist, is asked for in each partition.
     */
    private void awaitGroupCoordinators() throws Exception {
        if (!admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get().contains(CONSUMER_OFFSETS)) {
            return;
        }
        var topic = admin.describeTopics(List.of(CONSUMER_OFFSETS)).allTopicNames().get().get(CONSUMER_OFFSETS);
        int count = topic.partitions().size();
        Set<Integer> asked = new HashSet<>();
        for (int i = 0; asked.size() < count; i++) {
            String group = "live-test-" + i;
            if (asked.add(Utils.abs(group.hashCode()) % count)) {
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            }
        }
    }

    private Map<String, Long> logEnds() throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        names.removeIf(name -> !COORDINATOR_TOPICS.contains(name));
        for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values()) {
            topic.partitions().forEach(it ->
                asked.put(new TopicPartition(topic.name(), it.partition()), OffsetSpec.latest()));
        }
        Map<String, Long> ends = new TreeMap<>();
        admin.listOffsets(asked).all().get().forEach((at, end) -> ends.put(at.toString(), end.offset()));
        return ends;
    }

    private Map<String, Object> groups() throws Exception {
        Map<GroupType, List<String>> byType = new HashMap<>();
        for (GroupListing listing : admin.listGroups().all().get()) {
            byType.computeIfAbsent(listing.type().orElseThrow(), type -> new ArrayList<>()).add(listing.groupId());
        }
        var classic = byType.getOrDefault(GroupType.CLASSIC, List.of());
        var consumer = byType.getOrDefault(GroupType.CONSUMER, List.of());
        var share = byType.getOrDefault(GroupType.SHARE, List.of());
        Map<String, Map<String, Object>> groups = new TreeMap<>();
        admin.describeClassicGroups(classic).all().get().forEach((id, group) -> groups.put(id, classicGroup(group)));
        admin.describeConsumerGroups(consumer).all().get().forEach((id, group) -> groups.put(id, consumerGroup(group)));
        admin.describeShareGroups(share).all().get().forEach((id, group) -> groups.put(id, shareGroup(group)));
        Map<String, ListConsumerGroupOffsetsSpec> withOffsets = new HashMap<>();
        Stream.concat(classic.stream(), consumer.stream())
            .forEach(group -> withOffsets.put(group, new ListConsumerGroupOffsetsSpec()));
        if (!withOffsets.isEmpty()) {
            admin.listConsumerGroupOffsets(withOffsets).all().get()
                .forEach((id, committed) -> groups.get(id).put("offsets", offsets(committed)));
        }
        for (String id : share) {
            addShareState(id, groups.get(id));
        }
        return new TreeMap<>(groups);
    }

    private static Map<String, Object> classicGroup(ClassicGroupDescription group) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("type", "Classic");
        facts.put("state", group.state().toString());
        facts.put("protocol_type", group.protocol());
        facts.put("protocol_name", group.protocolData());
        facts.put("simple", group.isSimpleConsumerGroup());
        facts.put("members", group.members().stream().map(LiveBroker::member).toList());
        return facts;
    }

    private static Map<String, Object> consumerGroup(ConsumerGroupDescription group) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("type", "Consumer");
        facts.put("state", group.groupState().toString());
        facts.put("assignor", group.partitionAssignor());
        facts.put("group_epoch", group.groupEpoch().orElse(null));
        facts.put("target_epoch", group.targetAssignmentEpoch().orElse(null));
        facts.put("members", group.members().stream().map(member -> {
            Map<String, Object> told = member(member);
            told.put("rack", member.rackId().orElse(null));
            told.put("member_epoch", member.memberEpoch().orElse(null));
            told.put("upgraded", member.upgraded().orElse(null));
            told.put("target", member.targetAssignment().map(it -> partitions(it.topicPartitions())).orElse(null));
            return told;
        }).toList());
        return facts;
    }

    private static Map<String, Object> shareGroup(ShareGroupDescription group) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("type", "Share");
        facts.put("state", group.groupState().toString());
        facts.put("group_epoch", group.groupEpoch());
        facts.put("target_epoch", group.targetAssignmentEpoch());
        facts.put("members", group.members().stream().map(LiveBroker::shareMember).toList());
        return facts;
    }

    private static Map<String, Object> member(MemberDescription member) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("member_id", member.consumerId());
        facts.put("instance_id", member.groupInstanceId().orElse(null));
        facts.put("client_id", member.clientId());
        facts.put("host", member.host());
        facts.put("assignment", partitions(member.assignment().topicPartitions()));
        return facts;
    }

    private static Map<String, Object> shareMember(ShareMemberDescription member) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("member_id", member.consumerId());
        facts.put("client_id", member.clientId());
        facts.put("host", member.host());
        facts.put("rack", member.rackId().orElse(null));
        facts.put("member_epoch", member.memberEpoch());
        facts.put("assignment", partitions(member.assignment().topicPartitions()));
        return facts;
    }

    private static List<String> partitions(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).sorted().toList();
    }

    private static Map<String, Object> offsets(Map<TopicPartition, OffsetAndMetadata> committed) {
        Map<String, Object> offsets = new TreeMap<>();
        committed.forEach((at, offset) -> {
            if (offset != null) {
                Map<String, Object> facts = new LinkedHashMap<>();
                facts.put("offset", offset.offset());
                facts.put("leader_epoch", offset.leaderEpoch().orElse(null));
                facts.put("metadata", offset.metadata());
                offsets.put(at.toString(), facts);
            }
        });
        return offsets;
    }

    // ---- what the share coordinator keeps: no client may ask for it, so the request goes out by hand

    private void addShareState(String group, Map<String, Object> facts) throws Exception {
        Map<String, Object> listed = new TreeMap<>();
        Map<String, Object> states = new TreeMap<>();
        var startOffsets = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group).get();
        Map<String, Uuid> topicIds = new HashMap<>();
        Set<String> names = startOffsets.keySet().stream().map(TopicPartition::topic).collect(Collectors.toSet());
        admin.describeTopics(names).allTopicNames().get().forEach((name, topic) -> topicIds.put(name, topic.topicId()));
        String[] hostAndPort = address.split(":");
        try (var socket = new Socket(hostAndPort[0], Integer.parseInt(hostAndPort[1]))) {
            for (TopicPartition at : startOffsets.keySet()) {
                var offset = startOffsets.get(at);
                if (offset != null) {
                    Map<String, Object> told = new LinkedHashMap<>();
                    told.put("start_offset", offset.startOffset());
                    told.put("leader_epoch", offset.leaderEpoch().orElse(null));
                    listed.put(at.toString(), told);
                }
                states.put(at.toString(), shareState(socket, group, topicIds.get(at.topic()), at.partition()));
            }
        }
        facts.put("start_offsets", listed);
        facts.put("coordinator_state", states);
    }

    private static Map<String, Object> shareState(Socket socket, String group, Uuid topicId, int partition)
            throws Exception {
        var data = new ReadShareGroupStateRequestData()
            .setGroupId(group)
            .setTopics(List.of(new ReadShareGroupStateRequestData.ReadStateData()
                .setTopicId(topicId)
                .setPartitions(List.of(new ReadShareGroupStateRequestData.PartitionData()
                    .setPartition(partition)
                    .setLeaderEpoch(-1))))); // any other would be written down
        short version = ApiKeys.READ_SHARE_GROUP_STATE.latestVersion();
        var header = new RequestHeader(ApiKeys.READ_SHARE_GROUP_STATE, version, "live-test", 0);
        ByteBuffer request = new ReadShareGroupStateRequest.Builder(data).build(version).serializeWithHeader(header);
        var out = new DataOutputStream(socket.getOutputStream());
        out.writeInt(request.remaining());
        out.write(request.array(), request.arrayOffset() + request.position(), request.remaining());
        out.flush();
        var in = new DataInputStream(socket.getInputStream());
        byte[] response = in.readNBytes(in.readInt());
        var parsed = (ReadShareGroupStateResponse) AbstractResponse.parseResponse(ByteBuffer.wrap(response), header);
        ReadShareGroupStateResponseData.PartitionResult result =
            parsed.data().results().get(0).partitions().get(0);
        List<Object> batches = new ArrayList<>();
        for (var batch : result.stateBatches()) {
            batches.add(List.of(
                batch.firstOffset(), batch.lastOffset(), (int) batch.deliveryState(), (int) batch.deliveryCount()));
        }
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("error", Errors.forCode(result.errorCode()).name());
        state.put("state_epoch", result.stateEpoch());
        state.put("start_offset", result.startOffset());
        state.put("batches", batches);
        return state;
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
