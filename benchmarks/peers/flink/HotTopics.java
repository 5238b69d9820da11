package peers;

import java.util.HashMap;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Set;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.watermark.LongWatermark;
import org.apache.flink.api.common.watermark.LongWatermarkDeclaration;
import org.apache.flink.api.common.watermark.Watermark;
import org.apache.flink.api.common.watermark.WatermarkDeclaration;
import org.apache.flink.api.common.watermark.WatermarkDeclarations;
import org.apache.flink.api.common.watermark.WatermarkHandlingResult;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.datastream.api.ExecutionEnvironment;
import org.apache.flink.datastream.api.common.Collector;
import org.apache.flink.datastream.api.context.NonPartitionedContext;
import org.apache.flink.datastream.api.context.PartitionedContext;
import org.apache.flink.datastream.api.function.OneInputStreamProcessFunction;

/**
 * Hot topics in Flink's DataStream V2, with the functions of {@code examples/hot_topics.py}.
 *
 * <p>Heaps are in fields, as in FLIP-467; Flink does not checkpoint these. Mode {@code document}: every watermark
 * visits all heaps. Tweets are tuples, whose serializer is Flink's fastest.
 */
public final class HotTopics {
    private static final long START = 1_704_067_200_000L;
    private static final long WINDOW = 5 * 60 * 1000;
    private static final LongWatermarkDeclaration NEWEST =
            WatermarkDeclarations.newBuilder("newest-posting-time").typeLong().combineFunctionMax().build();

    public static void main(String[] arguments) throws Exception {
        Task task = new Task(arguments);
        ExecutionEnvironment env = Jobs.environment(task);
        TypeInformation<Tuple2<String, Long>> type = TypeInformation.of(new TypeHint<>() {});
        Jobs.end(
                Jobs.source(env, task, task.total(), new Tweets(task.keys), type)
                        .process(new Extractor(task))
                        .keyBy(tweet -> tweet.f0)
                        .process(new Detector(threshold(task), task.mode.contains("document"))),
                task);
        env.execute("hot topics");
        task.finish();
    }

    private static int threshold(Task task) {
        double[] shares = Tweets.shares(task.keys);
        return (int) (Math.min(WINDOW, task.total()) / shares[task.keys - 1] * 5 / 8);
    }

    /** {@code benchmarks/jobs/hot_topics.py} in Java. */
    static final class Tweets implements GeneratorFunction<Long, Tuple2<String, Long>> {
        private final int topics;
        private transient String[] table;
        private transient int shift;

        Tweets(int topics) {
            this.topics = topics;
        }

        @Override
        public Tuple2<String, Long> map(Long index) {
            if (table == null) {
                fill();
            }
            String topic = table[(int) ((index * 2_654_435_769L & 0xFFFF_FFFFL) >>> shift)];
            return Tuple2.of(topic, START + index / 1000 * 1000);
        }

        static double[] shares(int topics) {
            double[] shares = new double[topics];
            double sum = 0;
            for (int rank = 1; rank <= topics; rank++) {
                sum += 1.0 / rank;
                shares[rank - 1] = sum;
            }
            return shares;
        }

        private void fill() {
            int bits = Math.max(14, 64 - Long.numberOfLeadingZeros(topics * 4L - 1));
            long size = 1L << bits;
            double[] shares = shares(topics);
            String[] names = new String[topics + 1];
            for (int rank = 1; rank <= topics; rank++) {
                names[rank] = "topic-" + rank;
            }
            table = new String[(int) size];
            int rank = 1;
            for (long place = 0; place < size; place++) {
                while (shares[rank - 1] * size < (place + 0.5) * shares[topics - 1]) {
                    rank++;
                }
                table[(int) mixed(place, size, bits)] = names[rank];
            }
            shift = 32 - bits;
        }

        private static long mixed(long place, long size, int bits) {
            long mask = size - 1;
            long product = place * 0x9E3779B1L & mask;
            return (product ^ product >> (bits + 1) / 2) * 0x9E3779B1L & mask;
        }
    }

    static final class Extractor implements OneInputStreamProcessFunction<Tuple2<String, Long>, Tuple2<String, Long>> {
        private final Task task;
        private long newest = -1;
        private long tweets;

        Extractor(Task task) {
            this.task = task;
        }

        @Override
        public Set<? extends WatermarkDeclaration> declareWatermarks() {
            return Set.of(NEWEST);
        }

        @Override
        public void processRecord(
                Tuple2<String, Long> tweet,
                Collector<Tuple2<String, Long>> output,
                PartitionedContext<Tuple2<String, Long>> ctx) {
            task.passed(tweets++);
            output.collect(tweet);
            if (tweet.f1 > newest) {
                newest = tweet.f1;
                ctx.getNonPartitionedContext().getWatermarkManager().emitWatermark(NEWEST.newWatermark(newest));
            }
        }

        @Override
        public void endInput(NonPartitionedContext<Tuple2<String, Long>> ctx) {
            task.passed(tweets);
        }
    }

    /** Emits the size of a topic's heap whenever it exceeds the threshold. */
    static final class Detector implements OneInputStreamProcessFunction<Tuple2<String, Long>, Long> {
        private final int threshold;
        private final boolean walks;
        private final Map<String, PriorityQueue<Long>> heaps = new HashMap<>();
        private long newest = -1;

        Detector(int threshold, boolean walks) {
            this.threshold = threshold;
            this.walks = walks;
        }

        @Override
        public void processRecord(Tuple2<String, Long> tweet, Collector<Long> output, PartitionedContext<Long> ctx) {
            PriorityQueue<Long> heap = heaps.computeIfAbsent(tweet.f0, topic -> new PriorityQueue<>());
            if (!walks) {
                drop(heap);
            }
            heap.add(tweet.f1);
            if (heap.size() > threshold) {
                output.collect((long) heap.size());
            }
        }

        @Override
        public WatermarkHandlingResult onWatermark(
                Watermark watermark, Collector<Long> output, NonPartitionedContext<Long> ctx) {
            if (watermark.getIdentifier().equals(NEWEST.getIdentifier())) {
                newest = Math.max(newest, ((LongWatermark) watermark).getValue());
                if (walks) {
                    heaps.values().forEach(this::drop);
                }
            }
            return WatermarkHandlingResult.PEEK;
        }

        private void drop(PriorityQueue<Long> heap) {
            while (!heap.isEmpty() && heap.peek() < newest - WINDOW) {
                heap.poll();
            }
        }
    }
}
