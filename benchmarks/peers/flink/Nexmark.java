package peers;

import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.catalog.Column;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalTypeRoot;
import org.apache.flink.table.types.logical.RowType;

/**
 * The queries of Nexmark in Flink SQL, with the settings of the suite (mini-batches, split distinct aggregates), over
 * the events of {@code examples/nexmark/events.py}. Results are internal rows. Those of queries without updates are
 * counted.
 */
public final class Nexmark {
    private static final String DAY = "DATE_FORMAT(moment, 'yyyy-MM-dd')";
    private static final String BIDS = "COUNT(*), COUNT(*) FILTER (WHERE price < 10000),"
            + " COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000), COUNT(*) FILTER (WHERE price >= 1000000)";

    public static void main(String[] arguments) throws Exception {
        Task task = new Task(arguments);
        Configuration settings = new Configuration();
        settings.setString("table.exec.mini-batch.enabled", "true");
        settings.setString("table.exec.mini-batch.allow-latency", "2 s");
        settings.setString("table.exec.mini-batch.size", "50000");
        settings.setString("table.optimizer.distinct-agg.split.enabled", "true");
        settings.setString("table.local-time-zone", "UTC");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        env.getConfig().enableObjectReuse();
        env.setParallelism(task.parallelism);
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        declare(tables, env, task);
        Table results = tables.sqlQuery(query(task.mode));
        if (isUpdating(task.mode)) {
            List<Column> columns = results.getResolvedSchema().getColumns();
            Schema.Builder schema = Schema.newBuilder();
            for (int i = 0; i < columns.size(); i++) {
                schema.column("f" + i, columns.get(i).getDataType());
            }
            tables.createTemporaryTable(
                    "results", TableDescriptor.forConnector("blackhole").schema(schema.build()).build());
            results.executeInsert("results").await();
        } else {
            DataType rows = results.getResolvedSchema().toPhysicalRowDataType().bridgedTo(RowData.class);
            DataStream<RowData> stream = tables.toDataStream(results, rows);
            stream.map(new Sum(task, firstNumber(results))).returns(Types.LONG).sinkTo(new DiscardingSink<>());
            env.execute("nexmark " + task.mode);
        }
        task.finish();
    }

    private static int firstNumber(Table results) {
        int place = 0;
        for (DataType type : results.getResolvedSchema().getColumnDataTypes()) {
            if (type.getLogicalType().is(LogicalTypeRoot.BIGINT)) {
                break;
            }
            place++;
        }
        return place;
    }

    private static boolean isUpdating(String query) {
        return List.of("q4", "q9", "q15", "q16", "q17", "q18", "q19").contains(query);
    }

    private static String query(String name) {
        return switch (name) {
            case "q0" -> "SELECT * FROM bid";
            case "q1" -> "SELECT auction, bidder, 0.908 * price AS price, moment, extra FROM bid";
            case "q2" -> "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0";
            case "q3" -> """
                    SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
                    WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')""";
            case "q4" -> """
                    SELECT Q.category, AVG(Q.final) FROM (
                        SELECT MAX(B.price) AS final, A.category FROM auction A, bid B
                        WHERE A.id = B.auction AND B.moment BETWEEN A.moment AND A.expires
                        GROUP BY A.id, A.category) Q
                    GROUP BY Q.category""";
            case "q5" -> """
                    SELECT AuctionBids.auction, AuctionBids.num, AuctionBids.window_end FROM (
                        SELECT auction, COUNT(*) AS num, window_start, window_end
                        FROM TABLE(HOP(TABLE bid, DESCRIPTOR(moment), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
                        GROUP BY auction, window_start, window_end) AS AuctionBids
                    JOIN (
                        SELECT MAX(CountBids.num) AS maxn, CountBids.window_start, CountBids.window_end FROM (
                            SELECT COUNT(*) AS num, window_start, window_end
                            FROM TABLE(HOP(TABLE bid, DESCRIPTOR(moment), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
                            GROUP BY auction, window_start, window_end) AS CountBids
                        GROUP BY CountBids.window_start, CountBids.window_end) AS MaxBids
                    ON AuctionBids.window_start = MaxBids.window_start
                        AND AuctionBids.window_end = MaxBids.window_end AND AuctionBids.num >= MaxBids.maxn""";
            case "q7" -> """
                    SELECT B.auction, B.price, B.bidder, B.moment, B.extra FROM bid B JOIN (
                        SELECT MAX(price) AS maxprice, window_end AS moment
                        FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(moment), INTERVAL '10' SECOND))
                        GROUP BY window_start, window_end) B1
                    ON B.price = B1.maxprice
                    WHERE B.moment BETWEEN B1.moment - INTERVAL '10' SECOND AND B1.moment""";
            case "q8" -> """
                    SELECT P.id, P.name, P.starttime FROM (
                        SELECT id, name, window_start AS starttime, window_end AS endtime
                        FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(moment), INTERVAL '10' SECOND))
                        GROUP BY id, name, window_start, window_end) P
                    JOIN (
                        SELECT seller, window_start AS starttime, window_end AS endtime
                        FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(moment), INTERVAL '10' SECOND))
                        GROUP BY seller, window_start, window_end) A
                    ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime""";
            case "q9" -> """
                    SELECT id, item, description, initialBid, reserve, moment, expires, seller, category, extra,
                        auction, bidder, price, bid_moment, bid_extra
                    FROM (
                        SELECT A.*, B.auction, B.bidder, B.price, B.moment AS bid_moment, B.extra AS bid_extra,
                            ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.moment ASC) AS rownum
                        FROM auction A, bid B
                        WHERE A.id = B.auction AND B.moment BETWEEN A.moment AND A.expires)
                    WHERE rownum <= 1""";
            case "q11" -> """
                    SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
                    FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(moment), INTERVAL '10' SECOND))
                    GROUP BY bidder, window_start, window_end""";
            case "q14" -> """
                    SELECT auction, bidder, 0.908 * price AS price,
                        CASE WHEN HOUR(moment) >= 8 AND HOUR(moment) <= 18 THEN 'dayTime'
                            WHEN HOUR(moment) <= 6 OR HOUR(moment) >= 20 THEN 'nightTime' ELSE 'otherTime' END,
                        moment, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', ''))
                    FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""";
            case "q15" -> "SELECT " + DAY + ", " + BIDS + distinct("bidder") + distinct("auction")
                    + " FROM bid GROUP BY " + DAY;
            case "q16" -> "SELECT channel, " + DAY + ", MAX(DATE_FORMAT(moment, 'HH:mm')), " + BIDS
                    + distinct("bidder") + distinct("auction") + " FROM bid GROUP BY channel, " + DAY;
            case "q17" -> "SELECT auction, " + DAY + ", " + BIDS + ", MIN(price), MAX(price), AVG(price), SUM(price)"
                    + " FROM bid GROUP BY auction, " + DAY;
            case "q18" -> """
                    SELECT auction, bidder, price, channel, url, moment, extra FROM (
                        SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY moment DESC) AS rank_number
                        FROM bid)
                    WHERE rank_number <= 1""";
            case "q19" -> """
                    SELECT * FROM (
                        SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid)
                    WHERE rank_number <= 10""";
            case "q20" -> """
                    SELECT auction, bidder, price, channel, url, B.moment AS bid_time, B.extra AS bid_extra, item,
                        description, initialBid, reserve, A.moment AS auction_time, expires, seller, category,
                        A.extra AS auction_extra
                    FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10""";
            case "q21" -> """
                    SELECT auction, bidder, price, channel, CASE
                        WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1'
                        WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu' THEN '3'
                        ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
                    FROM bid WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
                        OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')""";
            case "q22" -> """
                    SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1,
                        SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
                    FROM bid""";
            case "q23" -> """
                    SELECT B.bidder, B.price, B.channel, B.url, B.extra AS bid_extra, P.name, P.email,
                        P.creditCard, P.city, P.state, P.extra AS person_extra, A.item, A.description, A.initialBid,
                        A.reserve, A.moment AS auction_time, A.expires, A.category, A.extra AS auction_extra
                    FROM bid B INNER JOIN person P ON P.id = B.bidder INNER JOIN auction A ON A.seller = B.bidder""";
            default -> throw new IllegalArgumentException("there is no query " + name);
        };
    }

    private static String distinct(String field) {
        String count = ", COUNT(DISTINCT " + field + ")";
        return count + count + " FILTER (WHERE price < 10000)" + count
                + " FILTER (WHERE price >= 10000 AND price < 1000000)" + count + " FILTER (WHERE price >= 1000000)";
    }

    // --- Events -----------------------------------------------------------------------------------------------------

    private static final DataType PERSON = DataTypes.ROW(
            DataTypes.FIELD("id", DataTypes.BIGINT()),
            DataTypes.FIELD("name", DataTypes.STRING()),
            DataTypes.FIELD("email", DataTypes.STRING()),
            DataTypes.FIELD("creditCard", DataTypes.STRING()),
            DataTypes.FIELD("city", DataTypes.STRING()),
            DataTypes.FIELD("state", DataTypes.STRING()),
            DataTypes.FIELD("extra", DataTypes.STRING()));
    private static final DataType AUCTION = DataTypes.ROW(
            DataTypes.FIELD("id", DataTypes.BIGINT()),
            DataTypes.FIELD("item", DataTypes.STRING()),
            DataTypes.FIELD("description", DataTypes.STRING()),
            DataTypes.FIELD("initialBid", DataTypes.BIGINT()),
            DataTypes.FIELD("reserve", DataTypes.BIGINT()),
            DataTypes.FIELD("expires", DataTypes.TIMESTAMP_LTZ(3)),
            DataTypes.FIELD("seller", DataTypes.BIGINT()),
            DataTypes.FIELD("category", DataTypes.BIGINT()),
            DataTypes.FIELD("extra", DataTypes.STRING()));
    private static final DataType BID = DataTypes.ROW(
            DataTypes.FIELD("auction", DataTypes.BIGINT()),
            DataTypes.FIELD("bidder", DataTypes.BIGINT()),
            DataTypes.FIELD("price", DataTypes.BIGINT()),
            DataTypes.FIELD("channel", DataTypes.STRING()),
            DataTypes.FIELD("url", DataTypes.STRING()),
            DataTypes.FIELD("extra", DataTypes.STRING()));
    private static final DataType EVENT = DataTypes.ROW(
            DataTypes.FIELD("event_type", DataTypes.INT()),
            DataTypes.FIELD("person", PERSON),
            DataTypes.FIELD("auction", AUCTION),
            DataTypes.FIELD("bid", BID),
            DataTypes.FIELD("moment", DataTypes.TIMESTAMP_LTZ(3)));

    private static void declare(StreamTableEnvironment tables, StreamExecutionEnvironment env, Task task) {
        InternalTypeInfo<RowData> type = InternalTypeInfo.of((RowType) EVENT.getLogicalType());
        GeneratorFunction<Long, RowData> make = Nexmark::event;
        DataStream<RowData> events = env.fromSource(
                        Jobs.generator(task, task.total(), make, type), WatermarkStrategy.noWatermarks(), "events")
                .map(new Watch(task))
                .returns(type);
        Schema schema = Schema.newBuilder()
                .fromRowDataType(EVENT)
                .watermark("moment", "moment - INTERVAL '4' SECOND")
                .build();
        tables.createTemporaryView("events", events, schema);
        view(tables, "person", 0, PERSON);
        view(tables, "auction", 1, AUCTION);
        view(tables, "bid", 2, BID);
    }

    private static void view(StreamTableEnvironment tables, String name, int type, DataType row) {
        StringBuilder fields = new StringBuilder();
        for (String field : DataType.getFieldNames(row)) {
            fields.append("`").append(name).append("`.").append(field).append(" AS ").append(field).append(", ");
        }
        tables.createTemporaryView(
                name, tables.sqlQuery("SELECT " + fields + "moment FROM events WHERE event_type = " + type));
    }

    private static final long ROUND = 50;
    private static final long FIRST_TIME = 1_767_225_540_000L;
    private static final long PER_SECOND = 10_000;
    private static final int CHANNELS = 10_000;
    private static final String[] CITIES = {
        "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"
    };
    private static final String[] STATES = {"AZ", "CA", "CA", "ID", "OR", "OR", "WA", "WA", "WA", "WY"};
    private static final String[] FIRST = {
        "Ada", "Alan", "Barbara", "Edgar", "Frances", "Grace", "Jim", "Ken", "Leslie", "Michael", "Tony"
    };
    private static final String[] LAST = {
        "Allen", "Codd", "Gray", "Hoare", "Hopper", "Lamport", "Liskov", "Lovelace", "Stonebraker", "Turing"
    };
    private static final StringData[] NAMES = new StringData[CHANNELS + 4];
    private static final StringData[] URLS = new StringData[CHANNELS + 4];

    static {
        String[] hot = {"Google", "Facebook", "Baidu", "Apple"};
        for (int i = 0; i < NAMES.length; i++) {
            String text = letters(i, 15).toString();
            String url = "https://www.nexmark.com/" + text.substring(0, 4) + "/" + text.substring(4, 8) + "/"
                    + text.substring(8) + "/item.htm?query=1";
            NAMES[i] = StringData.fromString(i < CHANNELS ? "channel-" + i : hot[i - CHANNELS]);
            URLS[i] = StringData.fromString(i < CHANNELS && i % 10 != 0 ? url + "&channel_id=" + i : url);
        }
    }

    static RowData event(long index) {
        long round = index / ROUND;
        long place = index % ROUND;
        long time = FIRST_TIME + index * 1_000 / PER_SECOND - random(index, 0, 3_000);
        TimestampData moment = TimestampData.fromEpochMillis(time);
        if (place == 0) {
            return GenericRowData.of(0, person(index, round), null, null, moment);
        }
        return place < 4
                ? GenericRowData.of(1, null, auction(index, round, round * 3 + place - 1, time), null, moment)
                : GenericRowData.of(2, null, null, bid(index, round), moment);
    }

    private static RowData person(long index, long round) {
        int city = (int) random(index, 1, CITIES.length);
        int name = (int) random(index, 2, FIRST.length * LAST.length);
        String first = FIRST[name / LAST.length];
        String last = LAST[name % LAST.length];
        return GenericRowData.of(
                1_000 + round,
                StringData.fromString(first + " " + last),
                StringData.fromString((first + "@" + last + ".example").toLowerCase()),
                StringData.fromString(Long.toString(random(index, 3, 10_000_000_000_000_000L))),
                StringData.fromString(CITIES[city]),
                StringData.fromString(STATES[city]),
                letters(index, 4));
    }

    private static RowData auction(long index, long round, long number, long time) {
        long initial = price(index, 1);
        long some = round - random(index, 3, Math.min(round + 1, 1_000));
        long expires = (time + 100 + random(index, 7, 20_000)) / 100 * 100 + number % 100;
        return GenericRowData.of(
                1_000 + number,
                letters(index, 4),
                letters(index, 5),
                initial,
                initial + price(index, 6),
                TimestampData.fromEpochMillis(expires),
                1_000 + (random(index, 2, 4) > 0 ? round / 100 * 100 : some),
                10 + random(index, 8, 5),
                letters(index, 9));
    }

    private static RowData bid(long index, long round) {
        long last = round * 3 + 2;
        long some = last + 10 - random(index, 1, Math.min(last + 11, 110));
        long bidder = random(index, 7, 4) > 0
                ? Math.min(round / 100 * 100 + 1, round)
                : round - random(index, 2, Math.min(round + 1, 1_000));
        int channel = (int) (random(index, 3, 2) > 0 ? CHANNELS + random(index, 4, 4) : random(index, 5, CHANNELS));
        return GenericRowData.of(
                1_000 + (random(index, 6, 2) > 0 ? last / 100 * 100 : some),
                1_000 + bidder,
                price(index, 8),
                NAMES[channel],
                URLS[channel],
                letters(index, 9));
    }

    private static long price(long index, int field) {
        return (long) Math.rint(100 * Math.pow(10, random(index, field, 1 << 30) / (double) (1 << 30) * 6));
    }

    /** SplitMix64 of the index of the event and the field. */
    private static long random(long index, int field, long limit) {
        long bits = (index * 16 + field + 1) * 0x9E3779B97F4A7C15L;
        bits = (bits ^ bits >>> 30) * 0xBF58476D1CE4E5B9L;
        bits = (bits ^ bits >>> 27) * 0x94D049BB133111EBL;
        return ((bits ^ bits >>> 31) >>> 1) % limit;
    }

    private static StringData letters(long index, int field) {
        long bits = random(index, field, 1L << 62);
        byte[] letters = new byte[12];
        for (int i = 0; i < 12; i++) {
            letters[i] = (byte) ('a' + (bits >> 4 * i & 15));
        }
        return StringData.fromBytes(letters);
    }

    /** Records the ends of batches. */
    static final class Watch extends RichMapFunction<RowData, RowData> {
        private final Task task;
        private long events;

        Watch(Task task) {
            this.task = task;
        }

        @Override
        public RowData map(RowData event) {
            task.passed(events++);
            return event;
        }

        @Override
        public void close() {
            task.passed(events);
        }
    }

    static final class Sum extends RichMapFunction<RowData, Long> {
        private final Task task;
        private final int place;
        private long results;
        private long sum;

        Sum(Task task, int place) {
            this.task = task;
            this.place = place;
        }

        @Override
        public Long map(RowData result) {
            sum += result.getLong(place);
            return results++;
        }

        @Override
        public void close() {
            task.addTotals(results, sum);
        }
    }
}
