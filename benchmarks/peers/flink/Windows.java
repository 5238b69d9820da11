package peers;

import java.time.Duration;
import java.util.Set;
import org.apache.flink.api.common.state.ReducingStateDeclaration;
import org.apache.flink.api.common.state.StateDeclaration;
import org.apache.flink.api.common.state.StateDeclarations;
import org.apache.flink.api.common.typeinfo.TypeDescriptors;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.datastream.api.ExecutionEnvironment;
import org.apache.flink.datastream.api.builtin.BuiltinFuncs;
import org.apache.flink.datastream.api.common.Collector;
import org.apache.flink.datastream.api.context.PartitionedContext;
import org.apache.flink.datastream.api.extension.eventtime.EventTimeExtension;
import org.apache.flink.datastream.api.extension.window.context.OneInputWindowContext;
import org.apache.flink.datastream.api.extension.window.function.OneInputWindowStreamProcessFunction;
import org.apache.flink.datastream.api.extension.window.strategy.WindowStrategy;

/** Windows of DataStream V2, which add up records on arrival in a reducing state of the window. */
public final class Windows {
    private static final ReducingStateDeclaration<Long> SUM =
            StateDeclarations.reducingState("sum", TypeDescriptors.LONG, Long::sum);

    public static void main(String[] arguments) throws Exception {
        Task task = new Task(arguments);
        ExecutionEnvironment env = Jobs.environment(task);
        WindowStrategy strategy =
                WindowStrategy.tumbling(Duration.ofMillis(task.records / 2), WindowStrategy.EVENT_TIME);
        Jobs.end(
                Events.source(env, task)
                        .process(EventTimeExtension.<Tuple3<Long, Long, Long>>newWatermarkGeneratorBuilder(e -> e.f1)
                                .periodicWatermark()
                                .buildAsProcessFunction())
                        .keyBy(event -> event.f0)
                        .process(BuiltinFuncs.window(strategy, new Sum())),
                task);
        env.execute("windows");
        task.finish();
    }

    static final class Sum implements OneInputWindowStreamProcessFunction<Tuple3<Long, Long, Long>, Long> {
        @Override
        public Set<StateDeclaration> useWindowStates() {
            return Set.of(SUM);
        }

        @Override
        public void onRecord(
                Tuple3<Long, Long, Long> event,
                Collector<Long> output,
                PartitionedContext<Long> ctx,
                OneInputWindowContext<Tuple3<Long, Long, Long>> window)
                throws Exception {
            window.getWindowState(SUM).orElseThrow().add(event.f2);
        }

        @Override
        public void onTrigger(
                Collector<Long> output,
                PartitionedContext<Long> ctx,
                OneInputWindowContext<Tuple3<Long, Long, Long>> window)
                throws Exception {
            output.collect(window.getWindowState(SUM).orElseThrow().get());
        }
    }
}
