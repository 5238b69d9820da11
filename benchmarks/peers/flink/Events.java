package peers;

import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.datastream.api.ExecutionEnvironment;
import org.apache.flink.datastream.api.common.Collector;
import org.apache.flink.datastream.api.context.NonPartitionedContext;
import org.apache.flink.datastream.api.context.PartitionedContext;
import org.apache.flink.datastream.api.function.OneInputStreamProcessFunction;
import org.apache.flink.datastream.api.stream.NonKeyedPartitionStream.ProcessConfigurableAndNonKeyedPartitionStream;

/** {@code benchmarks/jobs/events.py} in Java: user, time, value. */
final class Events {
    static final TypeInformation<Tuple3<Long, Long, Long>> TYPE = TypeInformation.of(new TypeHint<>() {});

    private Events() {}

    /** A source whose chained function records the ends of batches. */
    static ProcessConfigurableAndNonKeyedPartitionStream<Tuple3<Long, Long, Long>> source(
            ExecutionEnvironment env, Task task) {
        long users = task.keys;
        GeneratorFunction<Long, Tuple3<Long, Long, Long>> make = index ->
                Tuple3.of((index * 2_654_435_769L & 0xFFFF_FFFFL) * users >>> 32, index, index % 100);
        return Jobs.source(env, task, task.total(), make, TYPE).process(new Watch(task));
    }

    static final class Watch
            implements OneInputStreamProcessFunction<Tuple3<Long, Long, Long>, Tuple3<Long, Long, Long>> {
        private final Task task;
        private long events;

        Watch(Task task) {
            this.task = task;
        }

        @Override
        public void processRecord(
                Tuple3<Long, Long, Long> event,
                Collector<Tuple3<Long, Long, Long>> output,
                PartitionedContext<Tuple3<Long, Long, Long>> ctx) {
            task.passed(events++);
            output.collect(event);
        }

        @Override
        public void endInput(NonPartitionedContext<Tuple3<Long, Long, Long>> ctx) {
            task.passed(events);
        }
    }
}
