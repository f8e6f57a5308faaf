import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.cli.ConnectDistributed;

/** A worker of Kafka Connect. What it runs it says by its own REST interface: connectors as number -1, tasks as theirs. */
public final class Worker {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long LOOK_MS = 100;

    private final JsonNode settings;
    private final String address;
    private final HttpClient http = HttpClient.newHttpClient();

    private Worker(JsonNode settings) {
        this.settings = settings;
        this.address = "127.0.0.1:" + text("rest_port");
    }

    public static void main(String[] args) throws Exception {
        var worker = new Worker(JSON.readTree(Path.of(args[0]).toFile()));
        for (Runnable each : List.<Runnable>of(worker::listen, worker::look)) {
            var thread = new Thread(each);
            thread.setDaemon(true);
            thread.start();
        }
        ConnectDistributed.main(new String[] {worker.properties().toString()});
    }

    private Path properties() throws Exception {
        String group = text("group");
        Properties config = new Properties();
        config.put("bootstrap.servers", text("servers"));
        config.put("group.id", group);
        config.put("client.id", text("name"));
        config.put("key.converter", "org.apache.kafka.connect.storage.StringConverter");
        config.put("value.converter", "org.apache.kafka.connect.storage.StringConverter");
        for (String kind : List.of("offset", "config", "status")) {
            config.put(kind + ".storage.topic", group + "-" + kind + "s");
            config.put(kind + ".storage.replication.factor", "1");
        }
        config.put("offset.storage.partitions", "2");
        config.put("status.storage.partitions", "1");
        config.put("offset.flush.interval.ms", "1000");
        config.put("listeners", "http://" + address);
        config.put("session.timeout.ms", text("session_ms"));
        config.put("heartbeat.interval.ms", text("heartbeat_ms"));
        config.put("scheduled.rebalance.max.delay.ms", text("delay_ms"));
        config.put("plugin.discovery", "only_scan");
        config.put("plugin.path", text("plugins"));
        Path file = Path.of(text("folder"), "worker.properties");
        try (var out = Files.newOutputStream(file)) {
            config.store(out, null);
        }
        return file;
    }

    private void look() {
        List<List<Object>> before = List.of();
        while (true) {
            try {
                List<List<Object>> now = running();
                if (!now.equals(before)) {
                    says("owns", now);
                    before = now;
                }
                Thread.sleep(LOOK_MS);
            } catch (InterruptedException error) {
                return;
            } catch (Exception error) {
                // it does not answer yet, or not while it joins
            }
        }
    }

    private List<List<Object>> running() throws Exception {
        var asked = HttpRequest.newBuilder(URI.create("http://" + address + "/connectors?expand=status"))
            .timeout(Duration.ofSeconds(2)).build();
        JsonNode answer = JSON.readTree(http.send(asked, HttpResponse.BodyHandlers.ofString()).body());
        List<List<Object>> mine = new ArrayList<>();
        answer.properties().forEach(it -> {
            JsonNode status = it.getValue().get("status");
            if (isMine(status.get("connector"))) {
                mine.add(List.of(it.getKey(), -1));
            }
            status.get("tasks").forEach(task -> {
                if (isMine(task)) {
                    mine.add(List.of(it.getKey(), task.get("id").asInt()));
                }
            });
        });
        mine.sort((a, b) -> a.toString().compareTo(b.toString()));
        return mine;
    }

    private boolean isMine(JsonNode status) {
        return status.get("worker_id").asText().equals(address) && status.get("state").asText().equals("RUNNING");
    }

    private String text(String name) {
        return settings.get(name).asText();
    }

    private synchronized void says(String event, List<List<Object>> tasks) throws Exception {
        var line = JSON.writeValueAsString(Map.of(
            "at", System.currentTimeMillis(), "group", text("group"), "member", text("name"), "event", event,
            "partitions", tasks)) + "\n";
        Files.writeString(Path.of(text("callbacks")), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    /** `stop` ends it in order; the end of the input at once, without leaving. */
    private void listen() {
        try (var lines = new BufferedReader(new InputStreamReader(System.in, UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                System.exit(0);
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }
}
