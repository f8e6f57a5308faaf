import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** What a test's administrator does: users, ACLs, topics, configs, leaders. */
final class AdminActs {
    private static final int SCRAM_ITERATIONS = 4096;

    private final Admin admin;

    AdminActs(Admin admin) {
        this.admin = admin;
    }

    Object run(JsonNode command) throws Exception {
        switch (command.get("do").asText()) {
            case "create_topic" -> createTopic(command);
            case "add_partitions" -> addPartitions(command);
            case "set_config" -> setConfig(command);
            case "add_scram_user" -> addScramUser(command);
            case "allow" -> allow(command);
            case "lead" -> lead(command);
            case "leaders" -> {
                return leaders();
            }
            default -> throw new IllegalArgumentException("no such command: " + command);
        }
        return "done";
    }

    private void createTopic(JsonNode command) throws Exception {
        var topic = new NewTopic(command.get("topic").asText(), command.get("partitions").asInt(),
            (short) command.get("replicas").asInt());
        admin.createTopics(List.of(topic.configs(texts(command.get("configs"))))).all().get();
    }

    /** Up to so many in all. */
    private void addPartitions(JsonNode command) throws Exception {
        var increased = NewPartitions.increaseTo(command.get("partitions").asInt());
        admin.createPartitions(Map.of(command.get("topic").asText(), increased)).all().get();
    }

    /** Of a TOPIC, BROKER or GROUP. */
    private void setConfig(JsonNode command) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        texts(command.get("configs")).forEach((name, value) ->
            changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        var type = ConfigResource.Type.valueOf(command.get("type").asText());
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, command.get("name").asText()), changes)).all().get();
    }

    private static Map<String, String> texts(JsonNode node) {
        Map<String, String> texts = new HashMap<>();
        node.properties().forEach(it -> texts.put(it.getKey(), it.getValue().asText()));
        return texts;
    }

    private void addScramUser(JsonNode command) throws Exception {
        var credential = new ScramCredentialInfo(
            ScramMechanism.fromMechanismName(command.get("mechanism").asText()), SCRAM_ITERATIONS);
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
            command.get("user").asText(), credential, command.get("password").asText()))).all().get();
    }

    private void allow(JsonNode command) throws Exception {
        var resource = new ResourcePattern(ResourceType.valueOf(command.get("resource").asText()),
            command.get("name").asText(), PatternType.LITERAL);
        List<AclBinding> bindings = new ArrayList<>();
        for (JsonNode operation : command.get("operations")) {
            bindings.add(new AclBinding(resource, new AccessControlEntry("User:" + command.get("user").asText(), "*",
                AclOperation.valueOf(operation.asText()), AclPermissionType.ALLOW)));
        }
        admin.createAcls(bindings).all().get();
    }

    /** Make a node the first replica of a partition, and let it be elected. */
    private void lead(JsonNode command) throws Exception {
        var at = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
        int node = command.get("node").asInt();
        List<Integer> replicas = new ArrayList<>(List.of(node));
        TopicDescription topic = admin.describeTopics(List.of(at.topic())).allTopicNames().get().get(at.topic());
        topic.partitions().get(at.partition()).replicas().forEach(replica -> {
            if (replica.id() != node) {
                replicas.add(replica.id());
            }
        });
        admin.alterPartitionReassignments(Map.of(at, Optional.of(new NewPartitionReassignment(replicas)))).all().get();
        while (!admin.listPartitionReassignments().reassignments().get().isEmpty()) {
            Thread.sleep(50);
        }
        admin.electLeaders(ElectionType.PREFERRED, java.util.Set.of(at)).partitions().get();
    }

    /** Node by partition; -1 where nobody leads. */
    private Map<String, Integer> leaders() throws Exception {
        Map<String, Integer> leaders = new TreeMap<>();
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        admin.describeTopics(names).allTopicNames().get().forEach((name, topic) -> topic.partitions().forEach(it ->
            leaders.put(name + "-" + it.partition(), it.leader() == null ? -1 : it.leader().id())));
        return leaders;
    }
}
