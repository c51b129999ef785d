import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Kafka Streams counts the words of a topic under exactly_once_v2, without a cache so that every
 * update goes out, until the sink topic holds all of them.
 * Arguments: BOOTSTRAP INPUT_TOPIC OUTPUT_TOPIC PARTITIONS WORDS THREADS STATE_DIR.
 * Prints one "name value" line per figure.
 */
public class WordCountBench {
  public static void main(String[] args) throws Exception {
    String bootstrap = args[0];
    String input = args[1];
    String output = args[2];
    int partitions = Integer.parseInt(args[3]);
    long words = Long.parseLong(args[4]);

    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
        .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts").withCachingDisabled())
        .toStream()
        .to(output, Produced.with(Serdes.String(), Serdes.Long()));

    Properties config = new Properties();
    config.put("application.id", output);
    config.put("bootstrap.servers", bootstrap);
    config.put("processing.guarantee", "exactly_once_v2");
    config.put("num.stream.threads", args[5]);
    config.put("state.dir", args[6]);
    config.put("replication.factor", "1");
    config.put("auto.offset.reset", "earliest");

    try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
      long start = System.nanoTime();
      streams.start();
      long got = readAll(bootstrap, output, partitions, words, start);
      double seconds = (System.nanoTime() - start) / 1e9;
      if (got != words) {
        System.err.printf("the sink holds %d of %d updates%n", got, words);
        System.exit(1);
      }
      System.out.printf("updates_per_second %.3f%n", words / seconds);
      System.out.printf("resident_mib %.3f%n", residentKiB() / 1024.0);
      streams.close(Duration.ofSeconds(20));
    }
  }

  private static long readAll(String bootstrap, String topic, int partitions, long want, long start) {
    Properties config = new Properties();
    config.put("bootstrap.servers", bootstrap);
    config.put("isolation.level", "read_committed");
    config.put("auto.offset.reset", "earliest");
    List<TopicPartition> all = new ArrayList<>();
    for (int i = 0; i < partitions; i++) {
      all.add(new TopicPartition(topic, i));
    }
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.assign(all);
      consumer.seekToBeginning(all);
      long got = 0;
      while (got < want && System.nanoTime() - start < 300e9) {
        got += consumer.poll(Duration.ofMillis(200)).count();
      }
      return got;
    }
  }

  private static long residentKiB() throws Exception {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmHWM:")) {
        return Long.parseLong(line.replaceAll("[^0-9]", ""));
      }
    }
    return 0;
  }
}
