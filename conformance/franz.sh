#!/usr/bin/env bash
# The test suite of franz-go's client against a Hanbeon broker of its own:
#
#   franz.sh [PORT [TESTS]]     TESTS is a regular expression (all); PORT is 29192
#
# FRANZ_RECORDS bounds the records of the long tests (100000).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
port=${1:-29192}
tests=${2:-.}
work=$(mktemp -d)
broker=

finish() {
  if [ -n "$broker" ]; then
    kill "$broker" 2>/dev/null || :
    wait "$broker" 2>/dev/null || :
  fi
  rm -rf "$work"
}
trap finish EXIT

cd "$root"
go build -o "$work/hanbeon" ./cmd/hanbeon
go test -c -o "$work/kgo.test" github.com/twmb/franz-go/pkg/kgo
"$work/hanbeon" broker --dir "$work/data" --listen "127.0.0.1:$port" >"$work/log" 2>&1 &
broker=$!
for ((tries = 0; tries < 100; tries++)); do
  grep -q '^listening on' "$work/log" && break
  kill -0 "$broker" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
  sleep 0.1
done
# Some of its tests read files beside their source.
cd "$(go list -f '{{.Dir}}' github.com/twmb/franz-go/pkg/kgo)"
KGO_SEEDS=127.0.0.1:$port KGO_TEST_RF=1 KGO_TEST_RECORDS=${FRANZ_RECORDS:-100000} \
  "$work/kgo.test" -test.run "$tests" -test.timeout 15m >"$work/out" 2>&1 || { tail -n 100 "$work/out" >&2; grep -E '^ *--- FAIL' "$work/out" >&2 || :; exit 1; }
tail -n 1 "$work/out"
