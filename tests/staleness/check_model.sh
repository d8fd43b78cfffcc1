#!/bin/sh
# check_model.sh safety|progress|broken MODEL: model-checks the protocol with Spin. Exit status 0: as it should be.
# SPIN and CC name the programs.
set -eu

check=$1
model=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# expect VERDICT safety|progress MODEL-FLAGS...: runs Spin on the model with these definitions; its report must hold the
# words VERDICT (the exit status says nothing about faults), and an incomplete search is no verdict.
expect() {
  verdict=$1
  property=$2
  shift 2
  if [ "$property" = safety ]; then
    compiler_flags='-DSAFETY -DNOCLAIM'
    run_flags=''
  else
    compiler_flags='-DNFAIR=3'
    run_flags='-a -f'
  fi
  "$SPIN" -a "$@" "$model" > spin.log || { cat spin.log; exit 1; }
  # shellcheck disable=SC2086  # the flags are lists
  "$CC" -w $compiler_flags -o pan pan.c
  # shellcheck disable=SC2086
  ./pan -m1000000 $run_flags > report.txt
  echo "$property $*: $(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' report.txt) states; expected: $verdict"
  if ! grep -q "$verdict" report.txt || grep -q -e 'search depth too small' -e 'out of memory' report.txt; then
    cat report.txt
    exit 1
  fi
}

case $check in
  safety | progress)
    for bound in 0 1 2; do
      expect 'errors: 0' "$check" -DS=$bound
      expect 'errors: 0' "$check" -DS=$bound -DCHURN
    done ;;
  broken)
    expect 'assertion violated' safety -DS=1 -DBROKEN=1
    expect 'invalid end state' safety -DS=1 -DCHURN -DBROKEN=2
    expect 'invalid end state' safety -DS=1 -DBROKEN=3
    expect 'acceptance cycle' progress -DS=1 -DBROKEN=3 ;;
  *)
    echo "check is '$check'; permitted: safety, progress, broken"
    exit 2 ;;
esac
