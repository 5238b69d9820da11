package peers;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** Flink's interval join, which exists only in its first DataStream API. */
public final class IntervalJoin {
    private static final long APART = 2;
    private static final TypeInformation<Tuple2<Long, Long>> TYPE = TypeInformation.of(new TypeHint<>() {});

    public static void main(String[] arguments) throws Exception {
        Task task = new Task(arguments);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setParallelism(task.parallelism);
        env.getConfig().enableObjectReuse();
        side(env, task, 2_654_435_769L, true)
                .intervalJoin(side(env, task, 2_246_822_519L, false))
                .between(Duration.ZERO, Duration.ofSeconds(10))
                .process(new Match())
                .map(new Tally(task))
                .returns(Long.class)
                .sinkTo(new DiscardingSink<>());
        env.execute("interval join");
        task.finish();
    }

    private static KeyedStream<Tuple2<Long, Long>, Long> side(
            StreamExecutionEnvironment env, Task task, long multiplier, boolean watched) {
        long products = task.keys;
        GeneratorFunction<Long, Tuple2<Long, Long>> make = index ->
                Tuple2.of((index * multiplier & 0xFFFF_FFFFL) * products >>> 32, (index + 1) * APART);
        DataGeneratorSource<Tuple2<Long, Long>> source = Jobs.generator(task, task.total() / 2, make, TYPE);
        return env.fromSource(
                        source,
                        WatermarkStrategy.<Tuple2<Long, Long>>forMonotonousTimestamps()
                                .withTimestampAssigner((record, before) -> record.f1),
                        "records")
                .map(new Watch(watched ? task : null))
                .returns(TYPE)
                .keyBy(record -> record.f0);
    }

    /** Both sides progress together, so only one is observed; each of its records counts as two. */
    static final class Watch extends RichMapFunction<Tuple2<Long, Long>, Tuple2<Long, Long>> {
        private final Task task;
        private long records;

        Watch(Task task) {
            this.task = task;
        }

        @Override
        public Tuple2<Long, Long> map(Tuple2<Long, Long> record) {
            if (task != null) {
                task.passed(2 * records++);
            }
            return record;
        }

        @Override
        public void close() {
            if (task != null) {
                task.passed(2 * records);
            }
        }
    }

    static final class Match extends ProcessJoinFunction<Tuple2<Long, Long>, Tuple2<Long, Long>, Long> {
        @Override
        public void processElement(
                Tuple2<Long, Long> offer, Tuple2<Long, Long> order, Context context, Collector<Long> output) {
            output.collect(order.f1 - offer.f1);
        }
    }

    static final class Tally extends RichMapFunction<Long, Long> {
        private final Task task;
        private long results;
        private long checksum;

        Tally(Task task) {
            this.task = task;
        }

        @Override
        public Long map(Long result) {
            results++;
            checksum += result;
            return result;
        }

        @Override
        public void close() {
            task.addTotals(results, checksum);
        }
    }
}
