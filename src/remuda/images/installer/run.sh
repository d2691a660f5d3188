#!/bin/sh
# Installs the remuda distribution on this host from the files beside it, and starts or restarts its service when needed.
# The system agent runs it from the unpacked installer image; variables are those of k3s' installer, with REMUDA in their names.
#
#   INSTALL_REMUDA_EXEC        "server" or "agent" and arguments for it (server; agent when REMUDA_URL is set)
#   INSTALL_REMUDA_TYPE        the same word alone, before INSTALL_REMUDA_EXEC's
#   INSTALL_REMUDA_SKIP_ENABLE, INSTALL_REMUDA_SKIP_START, INSTALL_REMUDA_FORCE_RESTART
#   RESTART_STAMP              restart when it differs from that of the last time
#   REMUDA_DATA_DIR            where the distribution keeps everything (/var/lib/rancher/remuda)
#   REMUDA_ROOT                this host is a directory: before every path; no root needed
#   REMUDA_PYTHON              a Python that has remuda; not needed when the image brings its own
#   other REMUDA_* and proxies go into the service's environment

set -e
[ "${DEBUG:-}" = 1 ] && set -x

info() { printf '[INFO]  %s\n' "$*"; }
fatal() { printf '[ERROR] %s\n' "$*" >&2; exit 1; }
is_true() { case "${1:-}" in true | TRUE | True | 1 | yes) return 0 ;; *) return 1 ;; esac; }

HERE=${CATTLE_AGENT_EXECUTION_PWD:-$(cd "$(dirname "$0")" && pwd)}
ROOT=${REMUDA_ROOT:-}
ROOT=${ROOT%/}
DATA=${REMUDA_DATA_DIR:-$ROOT/var/lib/rancher/remuda}
STAMPS=$DATA/system-agent-installer
UNITS=$ROOT/etc/systemd/system
PREFIX=$ROOT/usr/local
VERSION=$(cat "$HERE/version")

choose_role() {
    EXEC=${INSTALL_REMUDA_EXEC:-}
    case "${INSTALL_REMUDA_TYPE:-}" in
        '')
            case "$EXEC" in
                server | agent | 'server '* | 'agent '*) ;;
                *) if [ -n "${REMUDA_URL:-}" ]; then EXEC="agent $EXEC"; else EXEC="server $EXEC"; fi ;;
            esac
            ;;
        server | agent) EXEC="$INSTALL_REMUDA_TYPE ${EXEC#"$INSTALL_REMUDA_TYPE"}" ;;
        *) fatal "INSTALL_REMUDA_TYPE is server or agent, not $INSTALL_REMUDA_TYPE" ;;
    esac
    if [ "${EXEC%% *}" = server ]; then
        SERVICE=remuda-server OTHER=remuda-node
    else
        SERVICE=remuda-node OTHER=remuda-server
    fi
}

check_host() {
    [ "$(uname -s)" = Linux ] || fatal "this distribution runs on Linux"
    [ "$(id -u)" = 0 ] || [ -n "$ROOT" ] || fatal "this must run as root"
    command -v systemctl >/dev/null 2>&1 || fatal "this host has no systemctl, which starts the distribution"
    # The root may be a read-only mount, as on systems that are replaced as a whole.
    mkdir -p "$PREFIX/bin" 2>/dev/null && [ -w "$PREFIX/bin" ] || PREFIX=$ROOT/opt/remuda
}

sum_of() { sha256sum "$@" 2>/dev/null | sha256sum | cut -d ' ' -f 1; }

# Put a file in its place in one step: the one that runs now goes on with the old one.
place() { # FILE TARGET MODE
    mkdir -p "$(dirname "$2")"
    rm -f "$2.new"
    cp -P "$1" "$2.new"
    [ -L "$2.new" ] || chmod "$3" "$2.new"
    mv -f "$2.new" "$2"
}

install_programs() {
    mkdir -p "$DATA" "$STAMPS" "$PREFIX/bin" "$UNITS"
    # An etcd for demonstrations is replaced only by a better one or the same.
    rm -f "$DATA/bin/etcd.demo"
    for file in "$HERE"/bin/*; do
        if [ -e "$file" ]; then place "$file" "$DATA/bin/$(basename "$file")" 0755; fi
    done
    choose_python
    write_launcher "$DATA/bin/remuda"
    # A remuda that the user has installed there is the client, and stays.
    if [ ! -e "$PREFIX/bin/remuda" ] || grep -q "$LAUNCHER" "$PREFIX/bin/remuda"; then
        write_launcher "$PREFIX/bin/remuda"
    else
        info "$PREFIX/bin/remuda is not ours and stays; the distribution's is $DATA/bin/remuda"
    fi
    for name in uninstall killall; do write_script "$name"; done
    printf '%s\n' "$VERSION" >"$DATA/release.new"
    mv -f "$DATA/release.new" "$DATA/release"
}

# A host's own choice first; then the one in the image; then whichever has us.
choose_python() {
    if [ -z "${REMUDA_PYTHON:-}" ] && [ -x "$HERE/python/run" ]; then
        identity=$(cat "$HERE/python/identity")
        if [ ! -x "$DATA/python/$identity/run" ]; then
            mkdir -p "$DATA/python"
            rm -rf "$DATA/python/.new"
            cp -R -P "$HERE/python" "$DATA/python/.new"
            mv "$DATA/python/.new" "$DATA/python/$identity"
        fi
        PYTHON=$DATA/python/$identity/run
        PYTHON_KEPT=$identity
        return
    fi
    for candidate in "${REMUDA_PYTHON:-}" python3; do
        PYTHON=$(command -v "$candidate" 2>/dev/null) || continue
        if "$PYTHON" -P -s -c 'import remuda.lab.distro' >/dev/null 2>&1; then return; fi
    done
    fatal "no Python on this host has remuda: set REMUDA_PYTHON to one that has it, or build an installer image that contains one (make images, on the server)"
}

# Those of older versions that no process uses any more.
drop_other_pythons() {
    for old in "$DATA"/python/*; do
        if [ -d "$old" ] && [ "$(basename "$old")" != "${PYTHON_KEPT:-}" ]; then rm -rf "$old"; fi
    done
}

LAUNCHER='the remuda distribution: '

# A word of a shell script.
word() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }

write_launcher() { # TARGET
    {
        printf '#!/bin/sh\n# %s%s\n' "$LAUNCHER" "$VERSION"
        [ -z "$ROOT" ] || printf 'export REMUDA_ROOT=%s\n' "$(word "$ROOT")"
        printf 'export REMUDA_DATA_DIR=%s\nexec %s -P -s -m remuda distro "$@"\n' "$(word "$DATA")" "$(word "$PYTHON")"
    } >"$1.new"
    chmod 0755 "$1.new"
    mv -f "$1.new" "$1"
}

write_script() { # uninstall or killall
    {
        printf '#!/bin/sh\nROOT=%s\nDATA=%s\nPREFIX=%s\n' "$(word "$ROOT")" "$(word "$DATA")" "$(word "$PREFIX")"
        cat "$HERE/$1.sh"
    } >"$PREFIX/bin/remuda-$1.sh.new"
    chmod 0755 "$PREFIX/bin/remuda-$1.sh.new"
    mv -f "$PREFIX/bin/remuda-$1.sh.new" "$PREFIX/bin/remuda-$1.sh"
}

# --- the service ----------------------------------------------------------------------------------------------------------

quoted() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"$`]/\\&/g')"; }

write_environment() {
    (
        umask 0177
        : >"$UNITS/$SERVICE.env.new"
        # Names only: a value may have several lines, which are not variables.
        for name in $(env | sed -n -e 's/^\(REMUDA_[A-Za-z0-9_]*\)=.*/\1/p' -e 's/^\([A-Za-z]*_[Pp][A-Za-z]*\)=.*/\1/p' | sort -u); do
            case "$name" in
                REMUDA_HOST_ID | REMUDA_PYTHON | REMUDA_IMAGES) continue ;;
                REMUDA_* | HTTP_PROXY | HTTPS_PROXY | NO_PROXY | http_proxy | https_proxy | no_proxy) ;;
                *) continue ;;
            esac
            eval "value=\${$name}"
            case "$value" in *"
"*) continue ;; esac
            printf '%s=%s\n' "$name" "$(quoted "$value")" >>"$UNITS/$SERVICE.env.new"
        done
    )
    mv -f "$UNITS/$SERVICE.env.new" "$UNITS/$SERVICE.env"
}

write_unit() {
    cat >"$UNITS/$SERVICE.service.new" <<UNIT
[Unit]
Description=Kubernetes by Remuda (${EXEC%% *})
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-$ROOT/etc/default/%N
EnvironmentFile=-$ROOT/etc/sysconfig/%N
EnvironmentFile=-$UNITS/$SERVICE.env
KillMode=mixed
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
TimeoutStopSec=60s
Restart=always
RestartSec=5s
ExecStart="$DATA/bin/remuda" $EXEC
UNIT
    chmod 0644 "$UNITS/$SERVICE.service.new"
    mv -f "$UNITS/$SERVICE.service.new" "$UNITS/$SERVICE.service"
}

installed_sum() { sum_of "$DATA"/bin/* "$DATA/release" "$UNITS/$SERVICE.service" "$UNITS/$SERVICE.env"; }

noted() { cat "$STAMPS/$1" 2>/dev/null || :; }

note() { # NAME TEXT
    printf '%s' "$2" >"$STAMPS/$1.new"
    mv -f "$STAMPS/$1.new" "$STAMPS/$1"
}

# Compared with what the service was last started with: an installation that did not start it, or was killed, still counts.
needs_restart() {
    is_true "${INSTALL_REMUDA_FORCE_RESTART:-}" && return 0
    [ "$(noted started_sum)" = "$INSTALLED" ] || return 0
    [ -z "${RESTART_STAMP:-}" ] || [ "$(noted restart_stamp)" = "$RESTART_STAMP" ] || return 0
    ! systemctl is-active --quiet "$SERVICE"
}

# A host has one role at a time.
retire_other() {
    [ -e "$UNITS/$OTHER.service" ] || return 0
    info "this host was a $OTHER before"
    systemctl disable --now "$OTHER" >/dev/null 2>&1 || :
    rm -f "$UNITS/$OTHER.service" "$UNITS/$OTHER.env"
    systemctl daemon-reload
}

# A failure at once is reported here, where the user sees it. What takes longer, because other hosts must come first, is seen by
# the probes of the plan; the plans of those others may be waiting for this one.
start_service() {
    restarts=$(systemctl show -p NRestarts --value "$SERVICE" 2>/dev/null || :)
    systemctl --no-block restart "$SERVICE"
    count=0
    while [ "$count" -lt "${INSTALL_REMUDA_START_SECONDS:-30}" ]; do
        if systemctl is-active --quiet "$SERVICE"; then
            info "$SERVICE is running"
            return 0
        fi
        if has_failed; then
            journalctl -u "$SERVICE" -n 20 --no-pager >&2 2>/dev/null || :
            fatal "$SERVICE does not start"
        fi
        count=$((count + 1))
        sleep 1
    done
    info "$SERVICE is still starting"
}

has_failed() {
    state=$(systemctl show -p SubState --value "$SERVICE" 2>/dev/null || :)
    case "$state" in failed | auto-restart*) return 0 ;; esac
    again=$(systemctl show -p NRestarts --value "$SERVICE" 2>/dev/null || :)
    [ "${again:-0}" -gt 0 ] && [ "$again" != "$restarts" ]
}

main() {
    choose_role
    check_host
    info "installing $VERSION as $SERVICE"
    install_programs
    write_environment
    write_unit
    INSTALLED=$(installed_sum)
    systemctl daemon-reload
    if is_true "${INSTALL_REMUDA_SKIP_ENABLE:-}"; then return 0; fi
    retire_other
    systemctl enable "$SERVICE" >/dev/null 2>&1 || systemctl enable "$SERVICE"
    if is_true "${INSTALL_REMUDA_SKIP_START:-}"; then return 0; fi
    if needs_restart; then start_service; else info "nothing has changed: $SERVICE goes on running"; fi
    note started_sum "$INSTALLED"
    if [ -n "${RESTART_STAMP:-}" ]; then note restart_stamp "$RESTART_STAMP"; fi
    drop_other_pythons
}

main
