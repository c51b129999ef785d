#!/usr/bin/env bash
# Apache Kafka as a peer: fetches its jars with Maven and runs a single KRaft node and Kafka's own tools.
#
#   kafka.sh jars               fetch the jars into .cache/kafka (once) and print their directory
#   kafka.sh start [PORT]       format and start an empty node on 127.0.0.1:PORT (29092; controller on PORT+1)
#   kafka.sh stop [PORT]        stop that node and remove its data
#   kafka.sh pid [PORT]         print the node's process id
#   kafka.sh run CLASS ARG...   run a Java class that is among the jars
#
# HANBEON_KAFKA_LIBS may name a directory that already holds the jars.
# Needs a JDK (17 or newer) and, for the first run, Maven.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=4.3.1
cache=$root/.cache/kafka
libs=${HANBEON_KAFKA_LIBS:-$cache/$version}

die() {
  printf 'kafka.sh: %s\n' "$*" >&2
  exit 1
}

# ensure_jars fetches into a directory of its own and renames it when it is whole, so that a run that was
# interrupted leaves nothing that looks complete, and two at once do no harm.
ensure_jars() {
  if [ -e "$libs/kafka_2.13-$version.jar" ]; then
    return
  fi
  [ -z "${HANBEON_KAFKA_LIBS:-}" ] || die "HANBEON_KAFKA_LIBS=$libs holds no kafka_2.13-$version.jar"
  command -v mvn >/dev/null || die "Maven (mvn) is needed to fetch Apache Kafka $version, and is not on the PATH"
  mkdir -p "$cache"
  local part
  part=$(mktemp -d "$cache/fetch.XXXXXX")
  mvn -q -B -f "$root/conformance/pom.xml" dependency:copy-dependencies \
    -DoutputDirectory="$part" -DincludeScope=runtime >&2 || { rm -rf "$part"; die "fetching the jars of Apache Kafka $version failed"; }
  mv -T "$part" "$libs" 2>/dev/null || rm -rf "$part"
  [ -e "$libs/kafka_2.13-$version.jar" ] || die "no kafka_2.13-$version.jar in $libs after fetching"
}

# run_java CLASS ARG... with quiet logging to standard error.
run_java() {
  command -v java >/dev/null || die "a JDK (java) is needed, and is not on the PATH"
  java -Xmx512m -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.defaultLogLevel="${KAFKA_TOOL_LOG:-error}" -cp "$libs/*" "$@"
}

node_dir() { printf '%s/node-%s' "$cache" "$1"; }

# node_pid prints the process id of the node on a port, if it runs: the PID file's process, and only if it is
# still the one that was started with this node's configuration.
node_pid() {
  local dir pid
  dir=$(node_dir "$1")
  pid=$(cat "$dir/pid" 2>/dev/null) || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$dir/server.properties" || return 1
  printf '%s\n' "$pid"
}

start() {
  local port=$1 dir pid
  dir=$(node_dir "$port")
  if pid=$(node_pid "$port"); then
    die "a node already runs on port $port (process $pid); stop it with: kafka.sh stop $port"
  fi
  ensure_jars
  rm -rf "$dir"
  mkdir -p "$dir"
  cat >"$dir/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$dir/data
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
PROPERTIES
  local id
  id=$(run_java kafka.tools.StorageTool random-uuid)
  run_java kafka.tools.StorageTool format -t "$id" -c "$dir/server.properties" >"$dir/format.log" 2>&1 ||
    { cat "$dir/format.log" >&2; die "formatting $dir failed"; }
  nohup java -server -Xms256m -Xmx1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=info -cp "$libs/*" \
    kafka.Kafka "$dir/server.properties" >"$dir/log" 2>&1 </dev/null &
  pid=$!
  printf '%s\n' "$pid" >"$dir/pid"
  local tries
  for ((tries = 0; tries < 600; tries++)); do
    if grep -q 'Kafka Server started' "$dir/log"; then
      printf '127.0.0.1:%s\n' "$port"
      return
    fi
    kill -0 "$pid" 2>/dev/null || { tail -n 30 "$dir/log" >&2; die "Apache Kafka stopped while starting on port $port"; }
    sleep 0.1
  done
  tail -n 30 "$dir/log" >&2
  kill -9 "$pid"
  die "Apache Kafka was not ready on port $port within 60 s"
}

stop() {
  local port=$1 dir pid tries
  dir=$(node_dir "$port")
  if pid=$(node_pid "$port"); then
    kill "$pid"
    for ((tries = 0; tries < 150; tries++)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || :
  fi
  rm -rf "$dir"
}

case ${1:-} in
jars) ensure_jars; printf '%s\n' "$libs" ;;
start) start "${2:-29092}" ;;
stop) stop "${2:-29092}" ;;
pid) node_pid "${2:-29092}" || die "no node runs on port ${2:-29092}" ;;
run) shift; ensure_jars; run_java "$@" ;;
*) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
