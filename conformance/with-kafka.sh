#!/usr/bin/env bash
# Runs a command beside an Apache Kafka node that is started for it, and stops the node again:
#
#   with-kafka.sh PORT COMMAND [ARG...]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
port=$1
shift
trap '"$here/kafka.sh" stop "$port"' EXIT
"$here/kafka.sh" start "$port"
"$@"
