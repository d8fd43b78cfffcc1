#!/bin/sh
# outlived.sh WORKER FOLDER COMMAND…: runs COMMAND for at most 100 s. Where workers have joined, the mpirun of Open MPI
# 5.0.11 may stay when all have ended; like `isochron launch` this kills it five seconds after the last process that
# runs WORKER FOLDER.
set -u
worker=$1
folder=$2
shift 2

watch() {
  seen=0
  alone=0
  while [ "$alone" -lt 25 ]; do
    sleep 0.2
    if pgrep -f "^$worker $folder( |\$)" >/dev/null; then
      seen=1
      alone=0
    else
      alone=$((alone + seen))
    fi
  done
  pkill -KILL -f "^[^ ]*prterun .* $folder( |\$)"
}
watch &
watcher=$!
timeout -k 5 100 "$@"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
