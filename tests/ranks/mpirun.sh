#!/bin/sh
# mpirun.sh MPIRUN RANKS PROGRAM [ARGUMENTS...]: a test program with real ranks on this host; alone if it only lists its
# tests.
set -eu
mpirun=$1
ranks=$2
shift 2
case " $* " in
  *" --gtest_list_tests "*) exec "$@" ;;
esac

options="--oversubscribe"
if "$mpirun" --version | grep -q '(Open MPI) 5'; then
  # Transports for fabrics cost a second at start; a fence at the end may wait for the dead.
  options="$options --with-ft ulfm --mca btl ^uct,ofi --mca async_mpi_finalize 1 --bind-to none"
fi
[ "$(id -u)" != 0 ] || options="$options --allow-run-as-root"
export OMP_NUM_THREADS=1
# shellcheck disable=SC2086  # options are words
exec "$mpirun" $options -n "$ranks" "$@"
