#!/bin/bash
# Install the tests' dependencies outside Python: scripts/test-deps.sh VENV_BIN. Prints and does nothing if all are installed.
set -euo pipefail

bin=$1
cd "$(dirname "$0")/.."

# strace shows the fdatasync before an acknowledgement; go fetches its modules over TLS; some of them need git.
# iproute2 and nftables put clusters into networks without incoming connections, tinyproxy is in front of one of them.
# docker-registry is the mirror from which hosts fetch their installer. skopeo pulls our image like a node; a real node and its pods
# need runc, the network plug-ins and busybox. debootstrap creates the hosts that podman runs, and the old Debian with the oldest
# Python that agents support. faketime gives an agent a wrong clock, e2fsprogs gives a server a disk with errors. curl, openssl,
# zstd and ssh are used as by users. chromium shows the page.
packages=(strace ca-certificates git iproute2 nftables tinyproxy docker-registry skopeo runc
  containernetworking-plugins busybox-static podman debootstrap faketime e2fsprogs curl openssl zstd openssh-client
  chromium)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done

if ((${#missing[@]})); then
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      echo "the tests need Debian packages: run  apt-get install ${missing[*]}  as root" >&2
      exit 1
    fi
    as_root=(sudo -n)
  fi
  echo "installing ${missing[*]}"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}")
  # Package lists may be absent or stale: then retry after an update.
  "${install[@]}" >"$log" 2>&1 || { "${as_root[@]}" apt-get update -qq >>"$log" 2>&1 && "${install[@]}" >>"$log" 2>&1; } || {
    cat "$log" >&2
    exit 1
  }
fi

# Debian's Go may be years too old for the Kubernetes of the tests; the wheel is the same toolchain without root.
recent_go() {
  local version
  version=$(go env GOVERSION 2>/dev/null) || return 1
  version=${version#go}
  [ "$(printf '%s\n' 1.26 "$version" | sort -V | head -n 1)" = 1.26 ]
}
if ! recent_go; then
  echo 'installing Go into the virtual environment'
  "$bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[go]'
fi
