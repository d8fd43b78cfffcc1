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
case " $* " in
  *" --gtest_filter="*) ;;
  # shellcheck disable=SC2086  # options are words
  *) exec "$mpirun" $options -n "$ranks" "$@" ;;
esac

# mpirun says that all is well when ranks die, since the others might go on. A rank that is at a test has a file here.
ISOCHRON_AT_TEST=$(mktemp -d)
export ISOCHRON_AT_TEST
trap 'rm -rf "$ISOCHRON_AT_TEST"' EXIT
# shellcheck disable=SC2086
"$mpirun" $options -n "$ranks" "$@"
for rank in "$ISOCHRON_AT_TEST"/*; do
  if [ -e "$rank" ]; then
    echo "rank ${rank##*/} died in the test" >&2
    exit 1
  fi
done
