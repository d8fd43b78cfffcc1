#!/bin/sh
# setup.sh GROUP...: installs what a group of goals needs and what is missing: Debian packages, Python packages into
# .venv and .venv-tf, the page's plotting library into web/vendor. Quick if nothing is missing. The groups:
#   build       the program and the engine: `make demo`
#   test        the tests of `make test`
#   tensorflow  TensorFlow in an environment of its own
#   check       linters, sanitizers, fuzzers, frameworks that the package works with: `make check`
#   wheel       what packs the Python package alone: `make wheel`
set -eu
cd "$(dirname "$0")/.."
log=build/log/setup.log

packages_of() {
  case $1 in
    build) echo "g++ cmake ninja-build ccache git python3 python3-venv iproute2
      libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libcpp-httplib-dev zlib1g-dev dataset-fashion-mnist
      $(command -v npm >/dev/null || echo npm)" ;;  # any npm will do; Debian's comes with a great many packages
    test) echo "libgtest-dev libgmock-dev librapidcheck-dev libglpk-dev spin chromium" ;;
    wheel) echo "g++ git python3 python3-venv libcli11-dev libtomlplusplus-dev nlohmann-json3-dev zlib1g-dev
      $(command -v npm >/dev/null || echo npm)" ;;
    check) echo "clang-19 clang-format-19 libclang-rt-19-dev libbenchmark-dev
      slurmctld slurmd slurm-client munge libpmix-dev nftables" ;;
  esac
}

# fail WHAT HOW: one line that says what cannot be had and what to do; the details are in the log.
fail() {
  echo "setup: $1; $2. Details: $log" >&2
  exit 2
}

install_packages() {
  missing=""
  for package in $1; do
    case " $(dpkg-query --show --showformat='${Package}=${db:Status-Status} ' "$package" 2>/dev/null || true)" in
      *" $package=installed "*) ;;
      *) missing="$missing $package" ;;
    esac
  done
  [ -n "$missing" ] || return 0

  as_root=""
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      fail "packages are missing, and installing them needs root" "run as root: apt-get install$missing"
    fi
    as_root="sudo"
  fi
  echo "setup: installing$missing" >&2
  # The package lists may be absent or older than the archive: then they are fetched, and it is tried once more.
  if ! apt_install "$missing"; then
    $as_root apt-get update --quiet --quiet >>$log 2>&1 ||
      fail "the package lists cannot be fetched" "check the network, then run: apt-get update"
    for package in $missing; do
      apt-cache show "$package" >/dev/null 2>&1 ||
        fail "this distribution has no package $package" "Debian 12 has it; elsewhere install what it holds by hand"
    done
    apt_install "$missing" ||
      fail "apt-get cannot install$missing" "check the network, then run: apt-get install$missing"
  fi
}

apt_install() {
  # shellcheck disable=SC2086  # words are meant to split
  $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet --quiet --yes --no-install-recommends $1 >>$log 2>&1
}

# Where there is no apt: says what the groups need and is missing, and what Fedora and Homebrew call it. Nothing is
# installed.
look_for_tools() {
  absent=""
  builds="" # more than the wheel, for which pip brings its own tools
  [ "$*" = wheel ] || builds=yes
  for entry in "c++ gcc-c++ gcc" ${builds:+"cmake cmake cmake" "ninja ninja-build ninja"} "git git git" \
    "python3 python3 python" "npm npm node"; do
    # shellcheck disable=SC2086
    set -- $entry
    command -v "$1" >/dev/null || absent="$absent\n  the program $1 (Fedora: $2, Homebrew: $3)"
  done
  for entry in "CLI/CLI.hpp cli11-devel cli11" "toml++/toml.h tomlplusplus-devel tomlplusplus" \
    "nlohmann/json.hpp json-devel nlohmann-json" "zlib.h zlib-devel zlib" \
    ${builds:+"httplib.h cpp-httplib-devel cpp-httplib" "gtest/gtest.h gtest-devel googletest"}; do
    # shellcheck disable=SC2086
    set -- $entry
    echo "#include <$1>" | c++ -std=c++20 -E -x c++ - >/dev/null 2>&1 ||
      absent="$absent\n  the header $1 (Fedora: $2, Homebrew: $3)"
  done
  [ -z "$absent" ] && return 0
  printf 'setup: this is no Debian, so packages are not installed here. Missing:%b\n' "$absent" >&2
  echo "setup: core and simulator need no more: cmake --preset core-only && cmake --build --preset core-only" >&2
  exit 2
}

# install_python ENVIRONMENT FILE: the packages of a requirements file into .venv or .venv-tf.
install_python() {
  seal=$1/$(basename "$2").installed
  wanted=$(git hash-object "$2")
  [ "$(cat "$seal" 2>/dev/null)" != "$wanted" ] || return 0
  echo "setup: installing $2 into $1" >&2
  [ -x "$1/bin/python" ] || python3 -m venv "$1"
  mark=$(wc -c <$log)
  if ! "$1/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$2" >>$log 2>&1; then
    culprit=$(tail -c +"$mark" $log | sed -n 's/.*No matching distribution found for //p' | tail -n 1)
    fail "pip cannot install ${culprit:-the packages of $2}" "check the network, then run: make setup"
  fi
  echo "$wanted" >"$seal"
}

# Our own package, from where it lies: a change of it needs no installing, and CMake builds its native module there.
link_package() {
  for folder in "$1"/lib/python3*/site-packages; do
    echo "$PWD/python" >"$folder/isochron.pth"
  done
}

[ $# != 0 ] || set -- build test tensorflow check
mkdir -p build/log
touch $log
if ! command -v dpkg-query >/dev/null; then
  look_for_tools "$@"
else
  wanted_packages=""
  for group in "$@"; do
    wanted_packages="$wanted_packages $(packages_of "$group")"
  done
  install_packages "$wanted_packages"
fi
for group in "$@"; do
  case $group in
    build)
      install_python .venv requirements.txt
      scripts/web.py
      ;;
    wheel)
      [ -x .venv/bin/python ] || python3 -m venv .venv
      scripts/web.py
      ;;
    test | check) install_python .venv "requirements-$group.txt" ;;
    tensorflow)
      if [ -e .venv-tf/unavailable ]; then continue; fi
      # In a shell of its own: TensorFlow has no packages for some machines, which then skip its tests.
      if (install_python .venv-tf requirements-tensorflow.txt); then
        link_package .venv-tf
      else
        touch .venv-tf/unavailable
        echo "setup: no TensorFlow for this machine; its tests will be skipped" >&2
      fi
      ;;
  esac
done
link_package .venv
