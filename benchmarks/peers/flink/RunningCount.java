package peers;

import java.util.Set;
import org.apache.flink.api.common.state.StateDeclaration;
import org.apache.flink.api.common.state.StateDeclarations;
import org.apache.flink.api.common.state.ValueStateDeclaration;
import org.apache.flink.api.common.state.v2.ValueState;
import org.apache.flink.api.common.typeinfo.TypeDescriptors;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.datastream.api.ExecutionEnvironment;
import org.apache.flink.datastream.api.common.Collector;
import org.apache.flink.datastream.api.context.PartitionedContext;
import org.apache.flink.datastream.api.function.OneInputStreamProcessFunction;

/** A keyed function with a value state, in the hash map state backend. */
public final class RunningCount {
    private static final ValueStateDeclaration<Long> COUNT = StateDeclarations.valueState("count", TypeDescriptors.LONG);

    public static void main(String[] arguments) throws Exception {
        Task task = new Task(arguments);
        ExecutionEnvironment env = Jobs.environment(task);
        Jobs.end(Events.source(env, task).keyBy(event -> event.f0).process(new Count()), task);
        env.execute("running count");
        task.finish();
    }

    static final class Count implements OneInputStreamProcessFunction<Tuple3<Long, Long, Long>, Long> {
        @Override
        public Set<StateDeclaration> usesStates() {
            return Set.of(COUNT);
        }

        @Override
        public void processRecord(
                Tuple3<Long, Long, Long> event, Collector<Long> output, PartitionedContext<Long> ctx) throws Exception {
            ValueState<Long> state = ctx.getStateManager().getState(COUNT);
            Long before = state.value();
            long count = before == null ? 1 : before + 1;
            state.update(count);
            output.collect(count);
        }
    }
}
