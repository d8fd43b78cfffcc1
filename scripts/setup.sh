#!/bin/sh
# Installs what building, testing and linting need and is not there yet. Nothing to do takes well under a second.
set -eu

packages="
  g++ cmake ninja-build ccache git python3
  clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev libglpk-dev spin
"

missing=""
for package in $packages; do
  # shellcheck disable=SC2016  # dpkg-query expands the variable, not the shell
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) || status=absent
  [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "setup: packages are missing and installing them needs root; run: apt-get install$missing" >&2
    exit 2
  fi
  as_root="sudo"
fi

install() {
  # shellcheck disable=SC2086  # words are meant to split
  $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet --quiet --yes --no-install-recommends $missing >&2
}

echo "setup: installing$missing" >&2
# The package lists may be absent or older than the archive: then fetch them and try once more.
if ! install; then
  echo "setup: fetching the package lists" >&2
  $as_root apt-get update --quiet --quiet >&2
  install
fi
