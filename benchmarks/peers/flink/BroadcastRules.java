package peers;

import java.util.Set;
import org.apache.flink.api.common.state.BroadcastStateDeclaration;
import org.apache.flink.api.common.state.StateDeclaration;
import org.apache.flink.api.common.state.StateDeclarations;
import org.apache.flink.api.common.typeinfo.TypeDescriptors;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.datastream.api.ExecutionEnvironment;
import org.apache.flink.datastream.api.common.Collector;
import org.apache.flink.datastream.api.context.NonPartitionedContext;
import org.apache.flink.datastream.api.context.PartitionedContext;
import org.apache.flink.datastream.api.function.TwoInputBroadcastStreamProcessFunction;

/** Rules (category, limit, version) are broadcast, and their limits are kept in broadcast state. */
public final class BroadcastRules {
    private static final long CATEGORIES = 10;
    private static final long EVENTS_PER_RULE = 1000;
    private static final BroadcastStateDeclaration<Long, Long> RULES = new StateDeclarations.MapStateDeclarationBuilder<>(
                    "rules", TypeDescriptors.LONG, TypeDescriptors.LONG)
            .buildBroadcast();

    public static void main(String[] arguments) throws Exception {
        Task task = new Task(arguments);
        ExecutionEnvironment env = Jobs.environment(task);
        long count = (task.total() + EVENTS_PER_RULE - 1) / EVENTS_PER_RULE;
        Jobs.end(
                Events.source(env, task)
                        .connectAndProcess(
                                Jobs.source(
                                                env,
                                                task,
                                                count,
                                                n -> Tuple3.of(n % CATEGORIES, knownLimit(n % CATEGORIES), n),
                                                Events.TYPE)
                                        .broadcast(),
                                new Apply()),
                task);
        env.execute("broadcast rules");
        task.finish();
    }

    private static long knownLimit(long category) {
        return category * 10;
    }

    static final class Apply
            implements TwoInputBroadcastStreamProcessFunction<Tuple3<Long, Long, Long>, Tuple3<Long, Long, Long>, Long> {
        @Override
        public Set<StateDeclaration> usesStates() {
            return Set.of(RULES);
        }

        @Override
        public void processRecordFromNonBroadcastInput(
                Tuple3<Long, Long, Long> event, Collector<Long> output, PartitionedContext<Long> ctx) throws Exception {
            long category = event.f0 % CATEGORIES;
            Long limit = ctx.getStateManager().getState(RULES).get(category);
            if (event.f2 >= (limit == null ? knownLimit(category) : limit)) {
                output.collect(event.f2);
            }
        }

        @Override
        public void processRecordFromBroadcastInput(Tuple3<Long, Long, Long> rule, NonPartitionedContext<Long> ctx)
                throws Exception {
            ctx.applyToAllPartitions(
                    (output, partition) -> partition.getStateManager().getState(RULES).put(rule.f0, rule.f1));
        }
    }
}
