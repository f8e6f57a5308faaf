import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Prints the names of a release's client settings, but for internal ones. */
public final class ClientSettings {
    public static void main(String[] args) {
        var names = new TreeSet<>(AdminClientConfig.configNames());
        names.addAll(ConsumerConfig.configNames());
        names.addAll(ProducerConfig.configNames());
        names.stream().filter(name -> !name.startsWith("internal.")).forEach(System.out::println);
    }
}
