import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One Java producer against a broker, then one read_committed reader of what it wrote.
 * Arguments: BOOTSTRAP RECORDS VALUE_BYTES RECORDS_PER_TRANSACTION PARTITIONS; 0 records per
 * transaction means idempotent without transactions. Prints one "name value" line per figure.
 */
public class ProduceBench {
  private final String bootstrap;
  private final String topic;
  private final int partitions;
  private final byte[] value;
  private final List<Long> commitNanos = new ArrayList<>();

  private ProduceBench(String bootstrap, int valueBytes, int partitions) {
    this.bootstrap = bootstrap;
    this.partitions = partitions;
    this.topic = "produce-bench-" + System.nanoTime();
    this.value = new byte[valueBytes];
    new Random(1).nextBytes(value);
  }

  public static void main(String[] args) throws Exception {
    int records = Integer.parseInt(args[1]);
    int perTransaction = Integer.parseInt(args[3]);
    ProduceBench bench = new ProduceBench(args[0], Integer.parseInt(args[2]), Integer.parseInt(args[4]));
    bench.createTopic();
    try (KafkaProducer<byte[], byte[]> producer = bench.producer(perTransaction > 0)) {
      int warmUp = perTransaction == 1 ? Math.min(records, 200) : records / 5;
      bench.produce(producer, warmUp, perTransaction);
      bench.commitNanos.clear();
      double seconds = bench.produce(producer, records, perTransaction);
      print("records_per_second", records / seconds);
      if (perTransaction > 0) {
        bench.printCommits(seconds);
      }
      bench.read(warmUp + records);
    }
  }

  private void createTopic() throws Exception {
    try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
      admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
    }
  }

  private KafkaProducer<byte[], byte[]> producer(boolean transactional) {
    Properties config = new Properties();
    config.put("bootstrap.servers", bootstrap);
    config.put("acks", "all");
    config.put("enable.idempotence", "true");
    config.put("linger.ms", "5");
    config.put("batch.size", "65536");
    if (transactional) {
      config.put("transactional.id", topic);
    }
    KafkaProducer<byte[], byte[]> producer =
        new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    if (transactional) {
      producer.initTransactions();
    }
    return producer;
  }

  /** Sends records and waits for them; returns the seconds that it took. */
  private double produce(KafkaProducer<byte[], byte[]> producer, int records, int perTransaction) {
    long start = System.nanoTime();
    for (int sent = 0; sent < records; ) {
      int end = perTransaction > 0 ? Math.min(records, sent + perTransaction) : records;
      if (perTransaction > 0) {
        producer.beginTransaction();
      }
      for (; sent < end; sent++) {
        producer.send(new ProducerRecord<>(topic, sent % partitions, null, value));
      }
      if (perTransaction > 0) {
        long commit = System.nanoTime();
        producer.commitTransaction();
        commitNanos.add(System.nanoTime() - commit);
      }
    }
    producer.flush();
    return (System.nanoTime() - start) / 1e9;
  }

  private void printCommits(double seconds) {
    Collections.sort(commitNanos);
    print("transactions_per_second", commitNanos.size() / seconds);
    print("commit_p50_ms", commitNanos.get(commitNanos.size() / 2) / 1e6);
    print("commit_p99_ms", commitNanos.get((int) (commitNanos.size() * 0.99)) / 1e6);
  }

  private void read(int records) {
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
      long start = System.nanoTime();
      int got = 0;
      while (got < records && System.nanoTime() - start < 60e9) {
        got += consumer.poll(Duration.ofMillis(500)).count();
      }
      double seconds = (System.nanoTime() - start) / 1e9;
      if (got != records) {
        System.err.printf("read %d of %d records%n", got, records);
        System.exit(1);
      }
      print("read_committed_per_second", got / seconds);
    }
  }

  private static void print(String name, double figure) {
    System.out.printf("%s %.3f%n", name, figure);
  }
}
