#!/bin/sh
# Installs what building, testing and linting need and what is missing: Debian packages, the Python packages of
# requirements.txt and our own into .venv, and the page's plotting library into web/vendor. Fast if nothing is.
set -eu
cd "$(dirname "$0")/.."

packages="
  g++ cmake ninja-build ccache git python3 python3-venv
  clang-19 clang-format-19 libclang-rt-19-dev
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libcpp-httplib-dev zlib1g-dev dataset-fashion-mnist iproute2
  libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev libglpk-dev spin chromium
"

# Any npm will do; Debian's comes with a great many packages.
command -v npm >/dev/null || packages="$packages npm"

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "setup: no Debian here, so nothing is installed; needed:" $packages >&2
    return
  fi
  # shellcheck disable=SC2016,SC2086  # dpkg-query expands the variables, not the shell; the packages are words
  known=$(dpkg-query --show --showformat='${Package}=${db:Status-Status} ' $packages 2>/dev/null) || true
  missing=""
  for package in $packages; do
    case " $known" in
      *" $package=installed "*) ;;
      *) missing="$missing $package" ;;
    esac
  done
  [ -n "$missing" ] || return 0

  as_root=""
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      echo "setup: packages are missing and installing them needs root; run: apt-get install$missing" >&2
      exit 2
    fi
    as_root="sudo"
  fi
  echo "setup: installing$missing" >&2
  # The package lists may be absent or older than the archive: then fetch them and try once more.
  if ! apt_install; then
    echo "setup: fetching the package lists" >&2
    $as_root apt-get update --quiet --quiet >&2
    apt_install
  fi
}

apt_install() {
  # shellcheck disable=SC2086  # words are meant to split
  $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet --quiet --yes --no-install-recommends $missing >&2
}

install_venv() {
  wanted=$(sha256sum requirements.txt pyproject.toml VERSION)
  [ "$(cat .venv/requirements.sha256 2>/dev/null)" != "$wanted" ] || return 0
  echo "setup: installing requirements.txt into .venv" >&2
  python3 -m venv .venv
  pip="python -m pip install --quiet --disable-pip-version-check"
  .venv/bin/$pip --requirement requirements.txt >&2
  # From where it lies: a change of the package needs no installing, and CMake builds its native module there.
  .venv/bin/$pip --no-build-isolation --no-deps --config-settings wheel.cmake=false --editable . >&2
  echo "$wanted" >.venv/requirements.sha256
}

# Apart from torch, which a user of TensorFlow need not have.
install_tensorflow() {
  wanted=$(sha256sum requirements-tensorflow.txt pyproject.toml)
  [ "$(cat .venv-tf/requirements.sha256 2>/dev/null)" != "$wanted" ] || return 0
  echo "setup: installing requirements-tensorflow.txt into .venv-tf" >&2
  python3 -m venv .venv-tf
  pip="python -m pip install --quiet --disable-pip-version-check"
  if .venv-tf/bin/$pip --requirement requirements-tensorflow.txt >&2; then
    # Our own package, from where it lies.
    echo "$PWD/python" >"$(.venv-tf/bin/python -c 'import site; print(site.getsitepackages()[0])')/isochron.pth"
    echo "$wanted" >.venv-tf/requirements.sha256
  else
    rm -rf .venv-tf
    echo "setup: no TensorFlow for this machine; its tests will be skipped" >&2
  fi
}

install_packages
install_venv
install_tensorflow
scripts/web.py
