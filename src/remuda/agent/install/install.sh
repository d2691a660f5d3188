# Installs the system agent on this host and registers the host with its server.
#
#   curl -fL --cacert CA https://SERVER/system-agent-install.sh | sudo sh -s - --server https://SERVER --token TOKEN --etcd --worker
#
# Roles and names of this host:
#   -a, --all-roles             etcd, control plane and worker
#   -e, --etcd                  -p, --controlplane              -w, --worker             --no-roles
#   -n, --node-name NAME        -l, --label KEY=VALUE           --taint, --taints KEY=VALUE:EFFECT
#       --address ADDRESS       -i, --internal-address ADDRESS  (an address, an interface, or a cloud's word, see below)
# The server:
#   -s, --server URL            -t, --token TOKEN               -c, --ca-checksum HEX
#
# The same by environment: CATTLE_SERVER CATTLE_TOKEN CATTLE_CA_CHECKSUM CATTLE_ROLE_ETCD CATTLE_ROLE_CONTROLPLANE
# CATTLE_ROLE_WORKER CATTLE_ROLE_NONE CATTLE_NODE_NAME CATTLE_ADDRESS CATTLE_INTERNAL_ADDRESS CATTLE_LABELS CATTLE_TAINTS
# CATTLE_ID. And only so:
#   CATTLE_LOCAL_ENABLED (false), CATTLE_REMOTE_ENABLED (true), CATTLE_PRESERVE_WORKDIR (false), CATTLE_AGENT_LOGLEVEL (info)
#   CATTLE_AGENT_CONFIG_DIR (/etc/rancher/agent), CATTLE_AGENT_VAR_DIR (/var/lib/rancher/agent), CATTLE_AGENT_BIN_PREFIX (/usr/local)
#   CATTLE_AGENT_BINARY_BASE_URL, CATTLE_AGENT_BINARY_URL, CATTLE_AGENT_BINARY_CHECKSUM, CATTLE_AGENT_UNINSTALL_URL,
#   CATTLE_AGENT_UNINSTALL_CHECKSUM: where the agent and its uninstaller come from
#   CATTLE_AGENT_BINARY_LOCAL, CATTLE_AGENT_BINARY_LOCAL_LOCATION, CATTLE_AGENT_UNINSTALL_LOCAL,
#   CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION: files of this host instead (air gap)
#   CATTLE_AGENT_FALLBACK_URL: a rancher-system-agent binary for hosts without Python 3.9
#   CATTLE_AGENT_FALLBACK_PATH: directories to add to the agent's PATH
#   CATTLE_AGENT_STRICT_VERIFY or STRICT_VERIFY (false): trust the server's own CA only
#   HTTP_PROXY, HTTPS_PROXY, NO_PROXY, DEBUG=1
#   CATTLE_HOST_ROOT, CATTLE_HOST_LOOPBACK: this host is a directory with a loopback address of its own; no root needed, and every
#   directory named above is below that one
#   CATTLE_INSTALL_DRY_RUN=true: print what would be done; no change, no request

set -e
[ "${DEBUG:-}" = 1 ] && set -x

info() { printf '[INFO]  %s\n' "$*" >&2; }
warn() { printf '[WARN]  %s\n' "$*" >&2; }
fatal() { printf '[ERROR] %s\n' "$*" >&2; exit 1; }

# Seconds between tries: at first, and when the server has been away or refusing for longer than two minutes.
RETRY_PAUSE=5
LONG_RETRY_PAUSE=30
SOON=24

# --- what was asked for -------------------------------------------------------------------------------------------------

need_value() { [ "$2" -ge 2 ] || fatal "$1 needs a value"; }

joined() { if [ -n "$1" ]; then printf '%s,%s' "$1" "$2"; else printf '%s' "$2"; fi; }

parse_args() {
    while [ $# -gt 0 ]; do
        case "$1" in
            -a | --all-roles) CATTLE_ROLE_ETCD=true CATTLE_ROLE_CONTROLPLANE=true CATTLE_ROLE_WORKER=true ;;
            -p | --controlplane) CATTLE_ROLE_CONTROLPLANE=true ;;
            -e | --etcd) CATTLE_ROLE_ETCD=true ;;
            -w | --worker) CATTLE_ROLE_WORKER=true ;;
            --no-roles) CATTLE_ROLE_NONE=true ;;
            -n | --node-name) need_value "$1" $#; CATTLE_NODE_NAME=$2; shift ;;
            --address) need_value "$1" $#; CATTLE_ADDRESS=$2; shift ;;
            -i | --internal-address) need_value "$1" $#; CATTLE_INTERNAL_ADDRESS=$2; shift ;;
            -l | --label) need_value "$1" $#; CATTLE_LABELS=$(joined "${CATTLE_LABELS:-}" "$2"); shift ;;
            --taint | --taints) need_value "$1" $#; CATTLE_TAINTS=$(joined "${CATTLE_TAINTS:-}" "$2"); shift ;;
            -s | --server) need_value "$1" $#; CATTLE_SERVER=$2; shift ;;
            -t | --token) need_value "$1" $#; CATTLE_TOKEN=$2; shift ;;
            -c | --ca-checksum) need_value "$1" $#; CATTLE_CA_CHECKSUM=$2; shift ;;
            *) fatal "unknown argument $1" ;;
        esac
        shift
    done
}

is_true() { case "$1" in true | TRUE | True | 1) return 0 ;; *) return 1 ;; esac; }

set_defaults() {
    ROOT=${CATTLE_HOST_ROOT:-}
    ROOT=${ROOT%/}
    case "$ROOT" in
        '' | /*) ;;
        *) fatal "CATTLE_HOST_ROOT must be an absolute path, not $ROOT" ;;
    esac
    CATTLE_LOCAL_ENABLED=${CATTLE_LOCAL_ENABLED:-false}
    CATTLE_REMOTE_ENABLED=${CATTLE_REMOTE_ENABLED:-true}
    CATTLE_PRESERVE_WORKDIR=${CATTLE_PRESERVE_WORKDIR:-false}
    CATTLE_AGENT_LOGLEVEL=${CATTLE_AGENT_LOGLEVEL:-info}
    CATTLE_ROLE_ETCD=${CATTLE_ROLE_ETCD:-false}
    CATTLE_ROLE_CONTROLPLANE=${CATTLE_ROLE_CONTROLPLANE:-false}
    CATTLE_ROLE_WORKER=${CATTLE_ROLE_WORKER:-false}
    CATTLE_ROLE_NONE=${CATTLE_ROLE_NONE:-false}
    CATTLE_SERVER=${CATTLE_SERVER:-}
    CATTLE_SERVER=${CATTLE_SERVER%/}
    CATTLE_TOKEN=${CATTLE_TOKEN:-}
    STRICT=$(printf %s "${CATTLE_AGENT_STRICT_VERIFY:-${STRICT_VERIFY:-false}}" | tr '[:upper:]' '[:lower:]')
    HTTP_PROXY=${HTTP_PROXY:-${http_proxy:-}}
    HTTPS_PROXY=${HTTPS_PROXY:-${https_proxy:-}}
    NO_PROXY=${NO_PROXY:-${no_proxy:-}}
    if is_true "$CATTLE_ROLE_NONE"; then
        CATTLE_ROLE_ETCD=false CATTLE_ROLE_CONTROLPLANE=false CATTLE_ROLE_WORKER=false
    fi
    CONFIG_DIR=$(below_root CATTLE_AGENT_CONFIG_DIR "${CATTLE_AGENT_CONFIG_DIR:-/etc/rancher/agent}")
    choose_places
    VAR_DIR=$(below_root CATTLE_AGENT_VAR_DIR "$VAR_DIR")
    BIN_PREFIX=$(below_root CATTLE_AGENT_BIN_PREFIX "$BIN_PREFIX")
    UNIT_DIR=$(below_root "the directory of units" /etc/systemd/system)
    UNIT=$UNIT_DIR/rancher-system-agent.service
    ENV_FILE=$UNIT_DIR/rancher-system-agent.env
    BINARY=$BIN_PREFIX/bin/rancher-system-agent
    UNINSTALL=$BIN_PREFIX/bin/rancher-system-agent-uninstall.sh
    INTERLOCK=$VAR_DIR/interlock
    CONNECTION=$VAR_DIR/rancher2_connection_info.json
    BASE_URL=${CATTLE_AGENT_BINARY_BASE_URL:-}
    [ -n "$BASE_URL" ] || [ -z "$CATTLE_SERVER" ] || BASE_URL=$CATTLE_SERVER/assets
}

# Programs go where the system lets us: some mount /usr/local on its own or read-only, some replace /usr as a whole.
choose_places() {
    VAR_DIR=${CATTLE_AGENT_VAR_DIR:-/var/lib/rancher/agent}
    BIN_PREFIX=${CATTLE_AGENT_BIN_PREFIX:-}
    [ -z "$BIN_PREFIX" ] || return 0
    BIN_PREFIX=/usr/local
    [ -z "$ROOT" ] || return 0
    if [ -x /usr/sbin/transactional-update ]; then
        BIN_PREFIX=/usr
        VAR_DIR=${CATTLE_AGENT_VAR_DIR:-/etc/rancher/agent/var}
    elif is_mount_point /usr/local || ! is_writable /usr/local; then
        BIN_PREFIX=/opt/rancher-system-agent
    fi
}

is_mount_point() { awk -v dir="$1" '$5 == dir { found = 1 } END { exit !found }' /proc/self/mountinfo 2>/dev/null; }

is_writable() {
    is_true "${CATTLE_INSTALL_DRY_RUN:-}" && return 0
    # Being root says nothing about a read-only mount.
    probe=$1/.rancher-system-agent-$$
    (: >"$probe") 2>/dev/null || return 1
    rm -f "$probe"
}

check_request() {
    if is_true "$CATTLE_REMOTE_ENABLED"; then
        [ -n "$CATTLE_SERVER" ] || fatal "the server's URL is missing: --server URL"
        case "$CATTLE_SERVER" in
            https://* | http://*) ;;
            *) fatal "the server's URL must begin with https://, not $CATTLE_SERVER" ;;
        esac
    fi
    if [ -n "$CATTLE_TOKEN" ] && ! is_true "$CATTLE_ROLE_NONE" && ! is_true "$CATTLE_ROLE_ETCD" \
        && ! is_true "$CATTLE_ROLE_CONTROLPLANE" && ! is_true "$CATTLE_ROLE_WORKER"; then
        fatal "this host needs a role: --etcd, --controlplane, --worker, --all-roles (or --no-roles)"
    fi
    if [ "$STRICT" = true ] && is_true "$CATTLE_REMOTE_ENABLED" && [ -z "${CATTLE_CA_CHECKSUM:-}" ]; then
        fatal "strict verification needs the checksum of the server's CA: --ca-checksum HEX"
    fi
}

find_architecture() {
    case "$(uname -m)" in
        x86_64 | amd64) ARCH=amd64 ;;
        aarch64 | arm64) ARCH=arm64 ;;
        arm*) ARCH=arm ;;
        s390x) ARCH=s390x ;;
        *) fatal "there is no agent for $(uname -m)" ;;
    esac
}

# The agent is a Python archive. Which Python runs it, or none.
find_python() {
    PYTHON=
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 /usr/libexec/platform-python; do
        found=$(command -v "$candidate" 2>/dev/null) || continue
        if "$found" -I -S -c 'import sys, ssl, zlib; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1; then
            PYTHON=$found
            return 0
        fi
    done
}

choose_binary() {
    BINARY_URL=${CATTLE_AGENT_BINARY_URL:-}
    BINARY_CHECKSUM=${CATTLE_AGENT_BINARY_CHECKSUM:-}
    if is_true "${CATTLE_AGENT_BINARY_LOCAL:-}"; then
        [ -n "${CATTLE_AGENT_BINARY_LOCAL_LOCATION:-}" ] || fatal "CATTLE_AGENT_BINARY_LOCAL needs CATTLE_AGENT_BINARY_LOCAL_LOCATION"
        BINARY_URL=
    elif [ -z "$BINARY_URL" ] && [ -n "$PYTHON" ]; then
        [ -n "$BASE_URL" ] || fatal "the address of the agent is missing: CATTLE_AGENT_BINARY_BASE_URL or CATTLE_AGENT_BINARY_URL"
        BINARY_URL=$BASE_URL/remuda-agent.pyz
        BINARY_CHECKSUM=${BINARY_CHECKSUM:-${CATTLE_AGENT_ARCHIVE_CHECKSUM:-}}
    elif [ -z "$BINARY_URL" ]; then
        [ -n "${CATTLE_AGENT_FALLBACK_URL:-}" ] || fatal "this host has no Python 3.9 or newer, which the agent needs;" \
            "install python3, or set CATTLE_AGENT_FALLBACK_URL to a rancher-system-agent binary for $ARCH"
        warn "this host has no Python 3.9 or newer; taking the rancher-system-agent binary from CATTLE_AGENT_FALLBACK_URL"
        BINARY_URL=$(printf %s "$CATTLE_AGENT_FALLBACK_URL" | sed "s/{arch}/$ARCH/g")
        BINARY_CHECKSUM=${CATTLE_AGENT_FALLBACK_CHECKSUM:-}
    fi
    UNINSTALL_URL=${CATTLE_AGENT_UNINSTALL_URL:-}
    [ -n "$UNINSTALL_URL" ] || [ -z "$BASE_URL" ] || UNINSTALL_URL=$BASE_URL/system-agent-uninstall.sh
}

# --- addresses ----------------------------------------------------------------------------------------------------------

metadata() { curl -fsS --noproxy '*' --max-time 10 "$@"; }

resolve_address() {
    case "$1" in
        '') ;;
        awslocal) metadata http://169.254.169.254/latest/meta-data/local-ipv4 ;;
        awspublic) metadata http://169.254.169.254/latest/meta-data/public-ipv4 ;;
        doprivate) metadata http://169.254.169.254/metadata/v1/interfaces/private/0/ipv4/address ;;
        dopublic) metadata http://169.254.169.254/metadata/v1/interfaces/public/0/ipv4/address ;;
        azprivate) azure privateIpAddress ;;
        azpublic) azure publicIpAddress ;;
        gceinternal) metadata -H 'Metadata-Flavor: Google' "$GOOGLE/ip" ;;
        gceexternal) metadata -H 'Metadata-Flavor: Google' "$GOOGLE/access-configs/0/external-ip" ;;
        packetlocal) metadata https://metadata.packet.net/2009-04-04/meta-data/local-ipv4 ;;
        packetpublic) metadata https://metadata.packet.net/2009-04-04/meta-data/public-ipv4 ;;
        ipify) curl -fsS --max-time 10 https://api.ipify.org ;;
        *) interface_address "$1" ;;
    esac
}

GOOGLE=http://metadata.google.internal/computeMetadata/v1/instance/network-interfaces/0
AZURE=http://169.254.169.254/metadata/instance/network/interface/0/ipv4/ipAddress/0

azure() { metadata -H Metadata:true "$AZURE/$1?api-version=2017-08-01&format=text"; }

interface_address() {
    if [ -e "/sys/class/net/$1" ] && command -v ip >/dev/null 2>&1; then
        ip -o -4 addr show dev "$1" scope global | awk 'NR == 1 { sub("/.*", "", $4); print $4 }'
    else
        printf '%s\n' "$1"
    fi
}

# --- talking to the server ----------------------------------------------------------------------------------------------

# There is no last try: no user may be present to run this again when the server is back.
again() {
    tries=$((${tries:-0} + 1))
    pause=$RETRY_PAUSE
    [ "$tries" -le "$SOON" ] || pause=$LONG_RETRY_PAUSE
    warn "$1; again in $pause s"
    sleep "$pause"
}

# Put a file in its place as a whole: a host may lose its power at any moment.
keep() { # FILE TARGET
    sync "$1" 2>/dev/null || sync || :
    mv -f "$1" "$2"
}

CACERT=

fetch() { # URL FILE
    curl -fsSL --connect-timeout 60 --max-time 600 ${CACERT:+--cacert "$CACERT"} -o "$2" "$1"
}

sum_of() { sha256sum "$1" | awk '{ print $1 }'; }

# A checksum that the system's own CAs make unnecessary is dropped, unless strict: certificates are renewed, checksums in
# scripts that users keep are not.
trust_server() {
    [ -n "${CATTLE_CA_CHECKSUM:-}" ] || return 0
    if [ "$STRICT" != true ]; then
        tries=0
        while :; do
            code=0
            curl -fsS --connect-timeout 60 -o /dev/null "$CATTLE_SERVER/healthz" 2>/dev/null || code=$?
            [ "$code" != 0 ] || { CATTLE_CA_CHECKSUM= && return 0; }
            case "$code" in 35 | 51 | 60 | 77) break ;; esac
            again "can't reach $CATTLE_SERVER (curl says $code)"
        done
    fi
    tries=0
    while :; do
        if curl -fsS --insecure --connect-timeout 60 -o "$SCRATCH/cacerts" "$CATTLE_SERVER/cacerts"; then
            [ "$(sum_of "$SCRATCH/cacerts")" = "$CATTLE_CA_CHECKSUM" ] && break
            # A server whose CA is being replaced shows the old one first; the checksum may be of that one alone.
            sed '/-----END CERTIFICATE-----/q' "$SCRATCH/cacerts" >"$SCRATCH/cacert"
            if [ "$(sum_of "$SCRATCH/cacert")" = "$CATTLE_CA_CHECKSUM" ]; then
                mv "$SCRATCH/cacert" "$SCRATCH/cacerts"
                break
            fi
            again "the CA of $CATTLE_SERVER has the checksum $(sum_of "$SCRATCH/cacerts"), not $CATTLE_CA_CHECKSUM"
        else
            again "can't get the CA of $CATTLE_SERVER"
        fi
    done
    grep -q 'BEGIN CERTIFICATE' "$SCRATCH/cacerts" || fatal "the content of $CATTLE_SERVER/cacerts is not a certificate"
    CACERT=$SCRATCH/cacerts
}

await_server() {
    tries=0
    until fetch "$CATTLE_SERVER/healthz" /dev/null; do again "$CATTLE_SERVER is not ready"; done
}

place() { # NAME URL LOCAL_FILE CHECKSUM TARGET
    mkdir -p "$(dirname "$5")"
    if [ -n "$3" ]; then
        cp "$3" "$5.new"
        has_checksum "$5.new" "$4" || { rm -f "$5.new"; fatal "$1 has another checksum than $4: not installed"; }
    else
        download "$@"
    fi
    chmod 0755 "$5.new"
    mv -f "$5.new" "$5"
    if command -v restorecon >/dev/null 2>&1; then restorecon "$5" 2>/dev/null || :; fi
}

download() { # as place()
    info "downloading $1 from $2"
    wanted=$4
    tries=0
    while :; do
        if ! fetch "$2" "$5.new"; then
            again "can't download $2"
        elif has_checksum "$5.new" "$wanted"; then
            return 0
        else
            rm -f "$5.new"
            again "$1 has another checksum than $wanted and is not installed"
            wanted=$(current_checksum "$2" "$wanted")
        fi
    done
}

has_checksum() { [ -z "$2" ] || [ "$(sum_of "$1")" = "$2" ]; } # FILE CHECKSUM

# The checksum that came with this script is that of the archive which the server had then. A server that is upgraded meanwhile
# says what its present archive has, by the connection that is verified like that of the script. One that a user gives stays.
current_checksum() { # URL CHECKSUM
    if [ -z "${CATTLE_AGENT_BINARY_CHECKSUM:-}" ] && [ "$1" = "$CATTLE_SERVER/assets/remuda-agent.pyz" ] \
        && fetch "$CATTLE_SERVER/assets/sha256sum.txt" "$SCRATCH/sums"; then
        awk -v wanted="$2" '$2 == "remuda-agent.pyz" { wanted = $1 } END { print wanted }' "$SCRATCH/sums"
    else
        printf '%s\n' "$2"
    fi
}

install_programs() {
    place "the agent" "$BINARY_URL" "$(local_file BINARY)" "$BINARY_CHECKSUM" "$BINARY"
    if [ "$(head -c 4 "$BINARY" | od -An -tx1 | tr -d ' \n')" = 7f454c46 ]; then
        RUN=$BINARY
    else
        [ -n "$PYTHON" ] || fatal "the agent needs Python 3.9 or newer, which this host does not have"
        # Nothing of the host's own but the standard library: what else Python would load takes memory, and may be anything.
        RUN="$PYTHON -I -S $BINARY"
    fi
    uninstaller=$(local_file UNINSTALL)
    if [ -n "$uninstaller" ] || [ -n "$UNINSTALL_URL" ]; then
        place "the uninstaller" "$UNINSTALL_URL" "$uninstaller" "${CATTLE_AGENT_UNINSTALL_CHECKSUM:-}" "$UNINSTALL"
    fi
}

local_file() {
    case "$1" in
        BINARY) if is_true "${CATTLE_AGENT_BINARY_LOCAL:-}"; then printf %s "$CATTLE_AGENT_BINARY_LOCAL_LOCATION"; fi ;;
        UNINSTALL) if is_true "${CATTLE_AGENT_UNINSTALL_LOCAL:-}"; then printf %s "${CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION:-}"; fi ;;
    esac
}

write_config() {
    (
        umask 0177
        cat >"$CONFIG_DIR/config.yaml" <<EOF
workDirectory: $VAR_DIR/work
localPlanDirectory: $VAR_DIR/plans
interlockDirectory: $INTERLOCK
remoteEnabled: $CATTLE_REMOTE_ENABLED
localEnabled: $CATTLE_LOCAL_ENABLED
appliedPlanDirectory: $VAR_DIR/applied
imagesDirectory: $VAR_DIR/images
preserveWorkDirectory: $CATTLE_PRESERVE_WORKDIR
EOF
        if is_true "$CATTLE_REMOTE_ENABLED"; then printf 'connectionInfoFile: %s\n' "$CONNECTION"; fi >>"$CONFIG_DIR/config.yaml"
        if [ -n "$ROOT" ]; then
            printf 'agentRegistriesFile: %s\nroot: %s\n' "$CONFIG_DIR/registries.yaml" "$ROOT"
        fi >>"$CONFIG_DIR/config.yaml"
    )
}

find_id() {
    CATTLE_ID=${CATTLE_ID:-}
    if [ -z "$CATTLE_ID" ] && [ -s "$CONFIG_DIR/cattle-id" ]; then CATTLE_ID=$(cat "$CONFIG_DIR/cattle-id"); fi
    if [ -z "$CATTLE_ID" ]; then
        CATTLE_ID=$(dd if=/dev/urandom count=1 bs=512 2>/dev/null | sha256sum | cut -c 1-63)
    fi
    # The server knows this host by its id from the first answer on: it must not be lost half-way.
    (umask 0177 && printf '%s\n' "$CATTLE_ID" >"$CONFIG_DIR/cattle-id.new")
    keep "$CONFIG_DIR/cattle-id.new" "$CONFIG_DIR/cattle-id"
}

header() { # NAME VALUE, as a line of curl's configuration; what is empty is not sent
    [ -n "$2" ] || return 0
    printf 'header = "%s: %s"\n' "$1" "$(printf %s "$2" | sed 's/[\\"]/\\&/g')"
}

# A host that this server knows comes in again by the token that it has from the time before; no other server gets to see it.
plan_token() {
    grep -qF "server: $CATTLE_SERVER\\n" "$CONNECTION" 2>/dev/null || return 0
    sed -n 's/.*token: \([A-Za-z0-9._-]*\).*/\1/p' "$CONNECTION" | head -n 1
}

# What the server says about a refusal.
reason() { sed -n 's/.*"message": *"\([^"]*\)".*/: \1/p' "$CONNECTION.tmp" 2>/dev/null | head -n 1 | cut -c 1-500; }

headers() {
    header Authorization "Bearer $CATTLE_TOKEN"
    header X-Cattle-Id "$CATTLE_ID"
    header X-Cattle-Plan-Token "$(plan_token)"
    header X-Cattle-Role-Etcd "$CATTLE_ROLE_ETCD"
    header X-Cattle-Role-Control-Plane "$CATTLE_ROLE_CONTROLPLANE"
    header X-Cattle-Role-Worker "$CATTLE_ROLE_WORKER"
    header X-Cattle-Node-Name "${CATTLE_NODE_NAME:-}"
    header X-Cattle-Address "${CATTLE_ADDRESS:-}"
    header X-Cattle-Internal-Address "${CATTLE_INTERNAL_ADDRESS:-}"
    header X-Cattle-Labels "${CATTLE_LABELS:-}"
    header X-Cattle-Taints "${CATTLE_TAINTS:-}"
    if [ -n "$ROOT" ]; then
        header X-Cattle-Layout "{\"loopback\":\"${CATTLE_HOST_LOOPBACK:-localhost}\",\"root\":\"$ROOT\"}"
    fi
}

register() {
    find_id
    tries=0
    while :; do
        # The token goes by standard input: all users of the host can read arguments.
        code=$(headers | (umask 0177 && curl -sS --connect-timeout 60 --max-time 300 ${CACERT:+--cacert "$CACERT"} -K - \
            -o "$CONNECTION.tmp" -w '%{http_code}' "$CATTLE_SERVER/v3/connect/agent")) || code=000
        if [ "$code" = 200 ]; then
            # shellcheck disable=SC2086
            if $RUN validate-connection "$CONNECTION.tmp"; then break; fi
            again "the server's answer is no connection info"
        else
            again "the server does not register this host (HTTP $code)$(reason)"
        fi
    done
    keep "$CONNECTION.tmp" "$CONNECTION"
}

write_unit() {
    mkdir -p "$UNIT_DIR"
    (
        umask 0177
        : >"$ENV_FILE"
        for name in HTTP_PROXY HTTPS_PROXY NO_PROXY; do
            eval "value=\$$name"
            [ -z "$value" ] || printf '%s=%s\n' "$name" "$value" >>"$ENV_FILE"
        done
        [ -z "${CATTLE_AGENT_FALLBACK_PATH:-}" ] || printf 'PATH=%s:%s\n' "$PATH" "$CATTLE_AGENT_FALLBACK_PATH" >>"$ENV_FILE"
    )
    cat >"$UNIT" <<EOF
[Unit]
Description=Rancher System Agent
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
EnvironmentFile=-$ROOT/etc/default/rancher-system-agent
EnvironmentFile=-$ROOT/etc/sysconfig/rancher-system-agent
EnvironmentFile=-$ENV_FILE
Type=simple
Restart=always
RestartSec=5s
RestartPreventExitStatus=10
Environment=CATTLE_LOGLEVEL=$CATTLE_AGENT_LOGLEVEL
Environment=CATTLE_AGENT_CONFIG=$CONFIG_DIR/config.yaml
Environment=CATTLE_AGENT_STRICT_VERIFY=$STRICT
ExecStart=$RUN sentinel
EOF
    chmod 0644 "$UNIT"
}

hold_agent() {
    mkdir -p "$INTERLOCK" "$CONFIG_DIR" "$VAR_DIR"
    chmod 0700 "$CONFIG_DIR"
    : >"$INTERLOCK/restart-pending"
    count=0
    while [ -e "$INTERLOCK/applyinator-active" ] && [ "$count" -lt 59 ]; do
        [ "$count" != 0 ] || info "the agent is applying a plan; waiting until it has"
        count=$((count + 1))
        sleep 5
    done
}

start_agent() {
    systemctl daemon-reload
    systemctl enable rancher-system-agent >/dev/null 2>&1 || systemctl enable rancher-system-agent
    systemctl restart rancher-system-agent
    rm -f "$INTERLOCK/restart-pending"
}

show() {
    for name in CATTLE_SERVER CATTLE_CA_CHECKSUM CATTLE_ROLE_ETCD CATTLE_ROLE_CONTROLPLANE CATTLE_ROLE_WORKER CATTLE_ROLE_NONE \
        CATTLE_NODE_NAME CATTLE_ADDRESS CATTLE_INTERNAL_ADDRESS CATTLE_LABELS CATTLE_TAINTS CATTLE_LOCAL_ENABLED \
        CATTLE_REMOTE_ENABLED CATTLE_PRESERVE_WORKDIR CATTLE_AGENT_LOGLEVEL STRICT ARCH PYTHON CONFIG_DIR VAR_DIR BINARY \
        BINARY_URL BINARY_CHECKSUM UNINSTALL UNINSTALL_URL UNIT HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        eval "value=\${$name:-}"
        printf '%s=%s\n' "$name" "$value"
    done
    if [ -n "$CATTLE_TOKEN" ]; then printf 'CATTLE_TOKEN=(given)\n'; fi
}

main() {
    parse_args "$@"
    set_defaults
    check_request
    find_architecture
    find_python
    choose_binary
    if is_true "${CATTLE_INSTALL_DRY_RUN:-}"; then
        show
        return 0
    fi
    [ "$(id -u)" = 0 ] || [ -n "$ROOT" ] || fatal "this must run as root"
    command -v curl >/dev/null 2>&1 || fatal "curl is needed and not installed"
    export HTTP_PROXY HTTPS_PROXY NO_PROXY
    SCRATCH=$(mktemp -d)
    trap 'rm -rf "$SCRATCH"' EXIT
    CATTLE_ADDRESS=$(resolve_address "${CATTLE_ADDRESS:-}") || fatal "can't determine this host's address"
    CATTLE_INTERNAL_ADDRESS=$(resolve_address "${CATTLE_INTERNAL_ADDRESS:-}") || fatal "can't determine this host's internal address"
    hold_agent
    if is_true "$CATTLE_REMOTE_ENABLED"; then
        trust_server
        await_server
    fi
    systemctl stop rancher-system-agent >/dev/null 2>&1 || :
    install_programs
    write_config
    if is_true "$CATTLE_REMOTE_ENABLED" && [ -n "$CATTLE_TOKEN" ]; then register; fi
    write_unit
    start_agent
    info "the agent is installed and running"
}

main "$@"
