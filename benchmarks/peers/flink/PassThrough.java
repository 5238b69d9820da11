package peers;

import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.datastream.api.ExecutionEnvironment;
import org.apache.flink.datastream.api.common.Collector;
import org.apache.flink.datastream.api.context.PartitionedContext;
import org.apache.flink.datastream.api.function.OneInputStreamProcessFunction;
import org.apache.flink.datastream.api.stream.NonKeyedPartitionStream;

/** All functions are chained. Mode {@code shuffled}: records are shuffled before and after the function. */
public final class PassThrough {
    public static void main(String[] arguments) throws Exception {
        Task task = new Task(arguments);
        ExecutionEnvironment env = Jobs.environment(task);
        boolean shuffled = task.mode.contains("shuffled");
        NonKeyedPartitionStream<Tuple3<Long, Long, Long>> events = Events.source(env, task);
        NonKeyedPartitionStream<Tuple3<Long, Long, Long>> through =
                (shuffled ? events.shuffle() : events).process(new Pass());
        Jobs.end((shuffled ? through.shuffle() : through).process(new Value()), task);
        env.execute("pass-through");
        task.finish();
    }

    static final class Pass
            implements OneInputStreamProcessFunction<Tuple3<Long, Long, Long>, Tuple3<Long, Long, Long>> {
        @Override
        public void processRecord(
                Tuple3<Long, Long, Long> event,
                Collector<Tuple3<Long, Long, Long>> output,
                PartitionedContext<Tuple3<Long, Long, Long>> ctx) {
            output.collect(event);
        }
    }

    static final class Value implements OneInputStreamProcessFunction<Tuple3<Long, Long, Long>, Long> {
        @Override
        public void processRecord(Tuple3<Long, Long, Long> event, Collector<Long> output, PartitionedContext<Long> ctx) {
            output.collect(event.f2);
        }
    }
}
