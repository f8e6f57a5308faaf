import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Map;
import java.util.concurrent.ExecutionException;

/**
 * Commands on standard input, one JSON object a line; each is answered by one line on standard output: `{"ok": ...}` or
 * `{"error": "..."}`. The end of the input, or the command "stop", ends the process at once: whoever started it, and
 * died, leaves nothing behind.
 */
final class Commands {
    static final ObjectMapper JSON = new ObjectMapper();

    /** What a program can do when asked. */
    interface Program {
        Object run(JsonNode command) throws Exception;

        /** In order, before the process ends. */
        void stop() throws Exception;
    }

    private final PrintStream answers;

    private Commands(PrintStream answers) {
        this.answers = answers;
    }

    /** Answers go to what is standard output now; a library which prints later must not look like an answer. */
    static Commands onStandardOutput() {
        Commands commands = new Commands(System.out);
        System.setOut(System.err);
        return commands;
    }

    /** Say that the program is ready, then serve until the end. Does not return. */
    void serve(Object ready, Program program) throws Exception {
        answer(Map.of("ok", ready));
        try (var lines = new BufferedReader(new InputStreamReader(System.in, UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                JsonNode command = JSON.readTree(line);
                if (command.get("do").asText().equals("stop")) {
                    program.stop();
                    answer(Map.of("ok", "stopped"));
                    break;
                }
                answer(run(program, command));
            }
        } finally {
            Runtime.getRuntime().halt(0);
        }
    }

    private static Map<String, ?> run(Program program, JsonNode command) {
        try {
            return Map.of("ok", program.run(command));
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            cause.printStackTrace();
            return Map.of("error", cause.toString());
        }
    }

    private void answer(Map<String, ?> facts) throws Exception {
        answers.println(JSON.writeValueAsString(facts));
        answers.flush();
    }
}
