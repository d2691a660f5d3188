#!/bin/bash
# Install Remuda into a virtual environment: scripts/venv.sh PYTHON DIRECTORY [EXTRAS [CONSTRAINTS]].
#
# Without EXTRAS the installation is a copy, which needs this checkout no longer; with them (for contributors) it is this checkout.
# Progress goes to stdout, a line for each step.
#
# Debian's python3 comes without ensurepip, so `python3 -m venv` alone fails on a bare machine. In order: `python3 -m venv`;
# an empty environment filled by an existing pip, or by the one in a Debian package; as root, the package python3-venv; else a
# message that says what to do.
set -euo pipefail

if [ $# -lt 2 ]; then
  echo 'usage: scripts/venv.sh PYTHON DIRECTORY [EXTRAS [CONSTRAINTS]]' >&2
  exit 2
fi
python=$1 venv=$(realpath -m "$2") extras=${3:-} constraints=${4:-}
cd "$(dirname "$0")/.."

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "Python 3.11 or later is needed and '$python' is not one: install it, or name another with make PYTHON=..." >&2
  exit 1
fi
# An environment is cleared before it is filled, and so would be anything else.
if [ -e "$venv" ] && [ ! -e "$venv/pyvenv.cfg" ] && [ -n "$(ls -A "$venv")" ]; then
  echo "$venv has other files in it: name a new or empty directory" >&2
  exit 1
fi

usable() { "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

plain() { "$python" -c 'import ensurepip' 2>/dev/null && "$python" -m venv --clear "$venv" >/dev/null && usable; }

borrowed() {
  "$python" -m pip --version >/dev/null 2>&1 || return 1
  "$python" -m venv --clear --without-pip "$venv" && "$python" -m pip --python "$venv/bin/python" install --quiet pip && usable
}

# The package is unpacked, not installed, which needs no root; apt verifies it. Its pip is old, and uses the machine's trusted CAs,
# of which there may be none yet: it only downloads a newer pip.
unpacked() (
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
  echo '  fetching pip from Debian, whose Python has none'
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkdir -p "$scratch"/{lists/partial,cache/archives/partial,found}
  apt=(apt-get -qq -o "Dir::State::Lists=$scratch/lists" -o "Dir::Cache=$scratch/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=)
  (
    cd "$scratch" && "${apt[@]}" update && "${apt[@]}" download python3-pip-whl ca-certificates || exit 1
    for package in *.deb; do dpkg-deb -x "$package" found || exit 1; done
    cat found/usr/share/ca-certificates/mozilla/*.crt >authorities.crt
  ) || return 1
  believed=()
  [ -n "${PIP_CERT:-}" ] || [ -e /etc/ssl/certs/ca-certificates.crt ] || believed=(--cert "$scratch/authorities.crt")
  pip=$(echo "$scratch"/found/usr/share/python-wheels/pip-*.whl)/pip
  "$python" -m venv --clear --without-pip "$venv" && "$venv/bin/python" "$pip" install --quiet "${believed[@]}" pip && usable
)

packaged() {
  command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
  echo '  installing python3-venv, which Debian does not include in python3'
  export DEBIAN_FRONTEND=noninteractive
  { apt-get install -y -qq --no-install-recommends python3-venv ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv; }; } >/dev/null 2>&1 || return 1
  plain
}

if ! usable; then
  echo "Creating a virtual environment in $venv"
  if ! plain && ! borrowed && ! unpacked && ! packaged; then
    rm -rf "$venv"
    echo "this Python can't create a virtual environment (no ensurepip, no pip): run  apt-get install python3-venv  as root" >&2
    exit 1
  fi
fi

# Pip's own output, which names each package several times, as a line for each package. Warnings and errors are on stderr.
steps() {
  while read -r word rest; do
    case $word in
      Collecting) echo "  fetching ${rest%% (from*}" ;;
      Building) [[ $rest != wheels* ]] || echo '  building Remuda' ;;
      Installing) [[ $rest != collected* ]] || echo '  installing' ;;
    esac
  done
}

echo 'Installing Remuda and the packages that it needs'
what=(.)
[ -z "$extras" ] || what=(--editable ".[$extras]")
"$venv/bin/python" -m pip install --disable-pip-version-check --no-color --progress-bar off ${constraints:+--constraint "$constraints"} \
  "${what[@]}" | steps
