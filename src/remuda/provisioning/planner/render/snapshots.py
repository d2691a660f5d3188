"""The tasks of a host's plan with snapshots of etcd: save one, report all, check and delete files
(docs/reference/operations.md#inventory, docs/reference/operations.md#files).

The report and the work on files are periodic instructions: plain commands that every host and every version has, also with
Rancher's own agent. They never fail: an instruction that does keeps the next ones from running. In the report a file is hashed
once, and a list that was not finished has no `end`. The work on files is part of the normal plan as long as there are requests,
restarts nothing, and runs before the report, so that a deleted file is not in the list that comes with the answer.
:mod:`remuda.provisioning.etcd.snapshot_reports` and :mod:`remuda.provisioning.etcd.file_requests` read what they print.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...etcd import database_reader, file_requests, snapshot_reports
from ...etcd.file_requests import DELETE, FileRequest
from ...etcd.snapshot_reports import MOST_FILES
from ...plans.plan import SNAPSHOT_PROGRAMS, File, Instruction, PeriodicInstruction
from ...releases.distributions import REMUDA
from ..snapshot import SaveSnapshot
from . import etcd_restore
from .context import Config, HostContext

# Bytes that one run hashes at most, so that the agent does not give it up; the next run goes on. Characters of metadata, so that
# the output is not shortened.
_MOST_HASHED, _MOST_METADATA = 8 << 30, 96 << 10

_REPORT_SCRIPT = """\
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

_READER, _CHECK = "database_reader.py", "check_snapshot.sh"

# A line is the id of the request, the result, the revision, the number of keys, the SHA-256, and a text.
_FILE_SCRIPT = """\
umask 077
directory={directory} check={check} reader={reader} program={program}
last() {{ tail -n 1 | tr -c '[:print:]' ' ' | cut -c 1-400; }}
remove() {{
    file="$directory/$2"
    if [ -e "$file" ]; then
        said=$("$program" etcd-snapshot delete --etcd-s3=false "$2" 2>&1)
        [ ! -e "$file" ] || {{ echo "$1 trouble - - - $(echo "$said" | last)"; return; }}
    fi
    if [ -d "$directory" ] || [ -d {beside} ]; then
        echo "$1 deleted - - -"
    else
        echo "$1 trouble - - - there is no directory $directory"
    fi
}}
verify() {{
    file="$directory/$2" sum=- numbers='- -'
    if said=$(nice sh "$check" "$file" "$3" "$4" {command} 2>&1); then
        sum=$(nice sha256sum < "$file" | cut -d ' ' -f 1)
        if command -v python3 > /dev/null; then
            if ! numbers=$(nice python3 "$reader" "$file" 2>&1); then
                echo "$1 invalid - - $sum $file: $(echo "$numbers" | last)"
                return
            fi
        fi
        echo "$1 valid $numbers $sum"
    else
        [ ! -f "$file" ] || sum=$(nice sha256sum < "$file" | cut -d ' ' -f 1)
        echo "$1 invalid - - ${{sum:--}} $(echo "$said" | last)"
    fi
}}
{calls}
exit 0
"""


def save_instruction(host: HostContext, task: SaveSnapshot) -> Instruction:
    cluster = host.cluster
    args = ("etcd-snapshot", "save", *(("--name", task.name) if task.name else ()))
    return Instruction("create", args=args, command=cluster.directories.command(cluster.runtime))


def directory_of(host: HostContext, config: Config) -> str:
    """The directory of snapshots. `config` is the host's configuration, in which users may name another one."""
    cluster = host.cluster
    chosen = str(config.get("etcd-snapshot-dir") or "")
    return cluster.layout.path(posixpath.normpath(chosen)) if posixpath.isabs(chosen) else usual_directory(host)


def usual_directory(host: HostContext) -> str:
    return f"{host.cluster.directories.distro}/server/db/snapshots"


def report_instruction(host: HostContext, config: Config) -> PeriodicInstruction:
    cluster, usual, directory = host.cluster, usual_directory(host), directory_of(host, config)
    # Without snapshots there may be no directory. But where nothing is, a disk may be missing.
    without = f'[ -d "$directory" ] || {{ [ -d {shlex.quote(posixpath.dirname(usual))} ] && echo "end 0"; exit 0; }}'
    script = _REPORT_SCRIPT.format(
        directory=shlex.quote(directory),
        metadata=shlex.quote(f"{posixpath.dirname(directory)}/.metadata"),
        notes=shlex.quote(f"{cluster.directories.provisioning}/snapshots"),
        without=without if directory == usual else '[ -d "$directory" ] || exit 0',
        hashed=_MOST_HASHED,
        room=_MOST_METADATA,
        most=MOST_FILES,
        more=2 * MOST_FILES,
    )
    return PeriodicInstruction(
        snapshot_reports.INSTRUCTION, args=("-c", script), command="sh", periodSeconds=snapshot_reports.PERIOD
    )


def file_programs(host: HostContext, requests: Sequence[FileRequest]) -> tuple[File, ...]:
    """The programs that the checks of `requests` need."""
    if all(request.action == DELETE for request in requests):
        return ()
    programs = {_CHECK: etcd_restore.CHECK_SCRIPT, _READER: Path(database_reader.__file__).read_text(encoding="utf-8")}
    return tuple(File.of(_path(host, name), text, dynamic=True, minor=True) for name, text in programs.items())


def file_instruction(host: HostContext, config: Config, requests: Iterable[FileRequest]) -> PeriodicInstruction:
    """`config` is the host's configuration, as for the report."""
    cluster = host.cluster
    directory = directory_of(host, config)
    program = cluster.directories.command(cluster.runtime)
    script = _FILE_SCRIPT.format(
        directory=shlex.quote(directory),
        # Without snapshots there may be no directory. But where nothing is, a disk may be missing.
        beside=shlex.quote(posixpath.dirname(directory) if directory == usual_directory(host) else directory),
        check=shlex.quote(_path(host, _CHECK)),
        reader=shlex.quote(_path(host, _READER)),
        program=shlex.quote(program),
        # As before a restore: only our own distribution has a check of its own.
        command=shlex.quote(program) if cluster.runtime is REMUDA else "",
        calls="\n".join(_call(request) for request in requests),
    )
    return PeriodicInstruction(file_requests.INSTRUCTION, args=("-c", script), command="sh", periodSeconds=file_requests.PERIOD)


def _call(request: FileRequest) -> str:
    file = shlex.quote(request.file)
    if request.action == DELETE:
        return f"remove {request.id} {file}"
    return f"verify {request.id} {file} {request.size} {shlex.quote(request.sha256)}"


def _path(host: HostContext, name: str) -> str:
    return f"{host.cluster.directories.distro}{SNAPSHOT_PROGRAMS}{name}"
