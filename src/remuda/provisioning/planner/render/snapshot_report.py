"""The periodic instruction by which a host reports its snapshots of etcd (docs/reference/operations.md#inventory).

Plain commands that every host and every version has, also with Rancher's own agent. A file is hashed once. A list that was not
finished has no `end`. It never fails: an instruction that does keeps the next ones from running.
:mod:`remuda.provisioning.etcd.snapshot_reports` reads it.
"""

from __future__ import annotations

import posixpath
import shlex

from ...etcd.snapshot_reports import INSTRUCTION, MOST_FILES, PERIOD
from ...plans.plan import PeriodicInstruction
from .context import Config, HostContext

# Bytes that one run hashes at most, so that the agent does not give it up; the next run goes on. Characters of metadata, so that
# the output is not shortened.
_MOST_HASHED, _MOST_METADATA = 8 << 30, 96 << 10

_SCRIPT = """\
umask 077
directory={directory} metadata={metadata} notes={notes}
echo "at $(date +%s)"
echo "directory $directory"
{without}
cd "$directory" && mkdir -p "$notes" && touch "$notes/known" && : > "$notes/new" || exit 0
ls -1t | head -n {more} | {{
    left={hashed} room={room} told=' ' number=0
    while IFS= read -r file; do
        case "$file" in .* | *.part) continue ;; esac
        [ -f "$file" ] && facts=$(stat -c '%s %Y' -- "$file") || continue
        number=$((number + 1))
        [ $number -le {most} ] || exit 0
        hash=$(grep -F -- " $facts $file/" "$notes/known" | head -n 1 | cut -d ' ' -f 1)
        if [ -z "$hash" ] && [ "${{facts% *}}" -le $left ]; then
            left=$((left - ${{facts% *}}))
            hash=$(nice sha256sum < "./$file" | cut -d ' ' -f 1)
            [ -z "$hash" ] || echo "$hash $facts $file/" >> "$notes/known"
        fi
        [ -z "$hash" ] || echo "$hash $facts $file/" >> "$notes/new"
        digest=-
        if [ -f "$metadata/$file" ]; then
            digest=$(sha256sum < "$metadata/$file" | cut -d ' ' -f 1)
            length=$(($(wc -c < "$metadata/$file") * 4 / 3 + 4))
            case "$told" in
            *" $digest "*) ;;
            *)
                if [ $length -le $room ]; then
                    room=$((room - length)) told="$told$digest "
                    echo "metadata $digest $(base64 < "$metadata/$file" | tr -d '\\n')"
                fi
                ;;
            esac
        fi
        echo "file $facts ${{hash:--}} $digest $file"
    done
    mv "$notes/new" "$notes/known"
    echo "end $number"
}}
exit 0
"""


def directory_of(host: HostContext, config: Config) -> str:
    """The directory of snapshots. `config` is the host's configuration, in which users may name another one."""
    cluster = host.cluster
    chosen = str(config.get("etcd-snapshot-dir") or "")
    return cluster.layout.path(posixpath.normpath(chosen)) if posixpath.isabs(chosen) else usual_directory(host)


def usual_directory(host: HostContext) -> str:
    return f"{host.cluster.directories.distro}/server/db/snapshots"


def instruction(host: HostContext, config: Config) -> PeriodicInstruction:
    cluster, usual, directory = host.cluster, usual_directory(host), directory_of(host, config)
    # Without snapshots there may be no directory. But where nothing is, a disk may be missing.
    without = f'[ -d "$directory" ] || {{ [ -d {shlex.quote(posixpath.dirname(usual))} ] && echo "end 0"; exit 0; }}'
    script = _SCRIPT.format(
        directory=shlex.quote(directory),
        metadata=shlex.quote(f"{posixpath.dirname(directory)}/.metadata"),
        notes=shlex.quote(f"{cluster.directories.provisioning}/snapshots"),
        without=without if directory == usual else '[ -d "$directory" ] || exit 0',
        hashed=_MOST_HASHED,
        room=_MOST_METADATA,
        most=MOST_FILES,
        more=2 * MOST_FILES,
    )
    return PeriodicInstruction(INSTRUCTION, args=("-c", script), command="sh", periodSeconds=PERIOD)
