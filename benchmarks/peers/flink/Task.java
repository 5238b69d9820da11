package peers;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/** The input and output of a program: {@code benchmarks/peers/protocol.py} in Java, for functions in one JVM. */
public final class Task implements Serializable {
    private static final Map<Long, Long> ENDS = new ConcurrentHashMap<>(); // by batch, in ns
    private static final AtomicLong RESULTS = new AtomicLong();
    private static final AtomicLong CHECKSUM = new AtomicLong();

    public final long records;
    public final long batches;
    public final long warmUp;
    public final int keys;
    public final int parallelism;
    public final String mode;
    private final String outcome;

    public Task(String[] arguments) {
        Map<String, String> given = new HashMap<>();
        for (int i = 0; i < arguments.length; i += 2) {
            given.put(arguments[i].substring(2), arguments[i + 1]);
        }
        records = Long.parseLong(given.get("records"));
        batches = Long.parseLong(given.get("batches"));
        warmUp = Long.parseLong(given.get("warm_up"));
        keys = Integer.parseInt(given.get("keys"));
        parallelism = Integer.parseInt(given.get("parallelism"));
        mode = given.get("mode");
        outcome = given.get("outcome");
    }

    /** The number of records of the whole run. */
    public long total() {
        return records * (warmUp + batches);
    }

    /** The first function calls this for each record, with the number of records before it. */
    public void passed(long before) {
        if (before * parallelism % records == 0) {
            ENDS.merge(before * parallelism / records, System.nanoTime(), Math::max);
        }
    }

    /** Each subtask of the last function calls this once at the end of its input. */
    public void addTotals(long results, long checksum) {
        RESULTS.addAndGet(results);
        CHECKSUM.addAndGet(checksum);
    }

    /** Writes the outcome. Called last. */
    public void finish() throws IOException {
        String seconds = LongStream.range(warmUp, warmUp + batches)
                .mapToObj(batch -> Double.toString((ENDS.get(batch + 1) - ENDS.get(batch)) / 1e9))
                .collect(Collectors.joining(", "));
        String flink = org.apache.flink.runtime.util.EnvironmentInformation.getVersion();
        Files.writeString(Path.of(outcome), String.format(
                "{\"seconds\": [%s], \"results\": %d, \"checksum\": %d, \"versions\": {\"flink\": \"%s\", \"java\": \"%s\"}}",
                seconds, RESULTS.get(), CHECKSUM.get(), flink, System.getProperty("java.version")));
    }
}
