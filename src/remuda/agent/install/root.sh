# A host that is a directory (CATTLE_HOST_ROOT) has everything below it: there, a path of an ordinary host is the one below the
# root. What leads out of it, by .. or by a link, is refused before anything is written or removed.
below_root() { # NAME PATH
    if [ -z "$ROOT" ]; then
        printf %s "$2"
        return 0
    fi
    case "$2/" in
        */../* | */./*) fatal "$1 must be a path without . and .. in it, not $2" ;;
        "$ROOT"/*) mapped=$2 ;;
        /*) mapped=$ROOT$2 ;;
        *) fatal "$1 must be an absolute path, not $2" ;;
    esac
    [ "${mapped%/}" != "$ROOT" ] || fatal "$1 can't be $2: that is all of this host"
    if [ -d "$ROOT" ]; then
        there=$mapped
        until [ -e "$there" ] || [ -L "$there" ]; do there=$(dirname "$there"); done
        real=$(cd "$there" 2>/dev/null && pwd -P) || fatal "$1 can't be $2: $there is no directory"
        case "$real/" in
            "$(cd "$ROOT" && pwd -P)"/*) ;;
            *) fatal "$1 can't be $2: it leads out of this host's directory $ROOT" ;;
        esac
    fi
    printf %s "$mapped"
}

