package peers;

import org.apache.flink.api.connector.dsv2.DataStreamV2SinkUtils;
import org.apache.flink.api.connector.dsv2.DataStreamV2SourceUtils;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.datastream.api.ExecutionEnvironment;
import org.apache.flink.datastream.api.common.Collector;
import org.apache.flink.datastream.api.context.NonPartitionedContext;
import org.apache.flink.datastream.api.context.PartitionedContext;
import org.apache.flink.datastream.api.function.OneInputStreamProcessFunction;
import org.apache.flink.datastream.api.stream.NonKeyedPartitionStream;
import org.apache.flink.datastream.api.stream.NonKeyedPartitionStream.ProcessConfigurableAndNonKeyedPartitionStream;
import org.apache.flink.datastream.impl.ExecutionEnvironmentImpl;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** Code shared by the programs: the environment, a source of generated records, and a sink that adds up. */
final class Jobs {
    private Jobs() {}

    /** Records are not copied between chained functions (none modifies its input), except in mode {@code copying}. */
    static ExecutionEnvironment environment(Task task) throws ReflectiveOperationException {
        ExecutionEnvironment env = ExecutionEnvironment.getInstance();
        ExecutionEnvironmentImpl impl = (ExecutionEnvironmentImpl) env;
        if (!task.mode.contains("copying")) {
            impl.getExecutionConfig().enableObjectReuse();
        }
        impl.setParallelism(task.parallelism);
        return env;
    }

    static <T> ProcessConfigurableAndNonKeyedPartitionStream<T> source(
            ExecutionEnvironment env, Task task, long count, GeneratorFunction<Long, T> make, TypeInformation<T> type) {
        return env.fromSource(DataStreamV2SourceUtils.wrapSource(generator(task, count, make, type)), "records");
    }

    /**
     * The records 0, 1, 2, ... Flink's source assigns a range to each of its readers. So that all subtasks progress
     * together in time, number n of the r-th of p ranges is mapped to p * n + r.
     */
    static <T> DataGeneratorSource<T> generator(
            Task task, long count, GeneratorFunction<Long, T> make, TypeInformation<T> type) {
        long readers = task.parallelism;
        long each = count / readers;
        GeneratorFunction<Long, T> inStep = number -> make.map(number % each * readers + number / each);
        return new DataGeneratorSource<>(readers == 1 ? make : inStep, each * readers, type);
    }

    /** Adds up the results and discards them. */
    static void end(NonKeyedPartitionStream<Long> results, Task task) {
        results.process(new Tally(task)).toSink(DataStreamV2SinkUtils.wrapSink(new DiscardingSink<>()));
    }

    static final class Tally implements OneInputStreamProcessFunction<Long, Long> {
        private final Task task;
        private long results;
        private long checksum;

        Tally(Task task) {
            this.task = task;
        }

        @Override
        public void processRecord(Long result, Collector<Long> output, PartitionedContext<Long> ctx) {
            results++;
            checksum += result;
        }

        @Override
        public void endInput(NonPartitionedContext<Long> ctx) {
            task.addTotals(results, checksum);
        }
    }
}
