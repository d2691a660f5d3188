#!/usr/bin/env sh
# Removes the system agent from this host: service, files, state, and this script. What plans have installed stays.

set -e

[ "${DEBUG:-}" = 1 ] && set -x

ROOT=${CATTLE_HOST_ROOT:-}
ROOT=${ROOT%/}
CONFIG_DIR=${CATTLE_AGENT_CONFIG_DIR:-/etc/rancher/agent}
VAR_DIR=${CATTLE_AGENT_VAR_DIR:-}
PROVISIONING_DIR=${CATTLE_PROVISIONING_DIR:-/var/lib/rancher/capr}
SELF=$0

fatal() { printf '[ERROR] %s\n' "$*" >&2; exit 1; }

# They are removed as a whole: a wrong variable must not remove the whole host.
check_place() {
    case "$1" in
        / | /etc | /var | /usr | /opt | /home | /root | /var/lib | /usr/local | '' | *..*) fatal "refusing to remove $1" ;;
        /*) ;;
        *) fatal "refusing to remove $1: not an absolute path" ;;
    esac
}

remove_programs() {
    for prefix in ${CATTLE_AGENT_BIN_PREFIX:-/usr/local /opt/rancher-system-agent /usr}; do
        prefix=$(below_root CATTLE_AGENT_BIN_PREFIX "$prefix")
        rm -f "$prefix/bin/rancher-system-agent" "$prefix/bin/rancher-system-agent-uninstall.sh"
    done
    rmdir "$ROOT/opt/rancher-system-agent/bin" "$ROOT/opt/rancher-system-agent" 2>/dev/null || :
}

[ "$(id -u)" = 0 ] || [ -n "$ROOT" ] || fatal "this must run as root"
case "$ROOT" in '' | /*) ;; *) fatal "CATTLE_HOST_ROOT must be an absolute path, not $ROOT" ;; esac
check_place "$CONFIG_DIR"
CONFIG_DIR=$(below_root CATTLE_AGENT_CONFIG_DIR "$CONFIG_DIR")
# The installer's place for it, whichever user runs this script.
[ -n "$VAR_DIR" ] || VAR_DIR=$(sed -n 's|^appliedPlanDirectory: \(.*\)/applied$|\1|p' "$CONFIG_DIR/config.yaml" 2>/dev/null) || :
VAR_DIR=${VAR_DIR:-/var/lib/rancher/agent}
check_place "$VAR_DIR"
check_place "$PROVISIONING_DIR"
VAR_DIR=$(below_root CATTLE_AGENT_VAR_DIR "$VAR_DIR")
PROVISIONING_DIR=$(below_root CATTLE_PROVISIONING_DIR "$PROVISIONING_DIR")
UNIT_DIR=$(below_root "the directory of units" /etc/systemd/system)
systemctl stop rancher-system-agent >/dev/null 2>&1 || :
systemctl disable rancher-system-agent >/dev/null 2>&1 || :
rm -f "$UNIT_DIR/rancher-system-agent.service" "$UNIT_DIR/rancher-system-agent.env"
systemctl reset-failed rancher-system-agent >/dev/null 2>&1 || :
systemctl daemon-reload >/dev/null 2>&1 || :
rm -rf "$VAR_DIR" "$CONFIG_DIR"
# The records of finished steps of plans: a host that is registered again starts from the beginning.
rm -rf "$PROVISIONING_DIR"
# Other programs have files beside it; directories that are empty now are removed, too.
rmdir "$ROOT/etc/rancher" "$ROOT/var/lib/rancher" 2>/dev/null || :
remove_programs
case "$SELF" in */rancher-system-agent-uninstall.sh) rm -f "$SELF" ;; esac
