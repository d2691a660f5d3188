"""The periodic instruction by which a host checks and deletes files of snapshots (docs/reference/operations.md#files).

It is part of the normal plan as long as there are requests, and restarts nothing. It runs before the report of the files
(:mod:`.snapshot_report`), so that a deleted file is not in the list that comes with the answer. It never fails: an instruction
that does keeps the next ones from running. :mod:`remuda.provisioning.etcd.file_requests` reads what it prints.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...etcd import database_reader
from ...etcd.file_requests import DELETE, INSTRUCTION, PERIOD, FileRequest
from ...plans.plan import SNAPSHOT_PROGRAMS, File, PeriodicInstruction
from ...releases.distributions import REMUDA
from . import etcd_restore
from .context import Config, HostContext
from .snapshot_report import directory_of, usual_directory

_READER, _CHECK = "database_reader.py", "check_snapshot.sh"

# A line is the id of the request, the result, the revision, the number of keys, the SHA-256, and a text.
_SCRIPT = """\
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


def files(host: HostContext, requests: Sequence[FileRequest]) -> tuple[File, ...]:
    """The programs that the checks of `requests` need."""
    if all(request.action == DELETE for request in requests):
        return ()
    programs = {_CHECK: etcd_restore.CHECK_SCRIPT, _READER: Path(database_reader.__file__).read_text(encoding="utf-8")}
    return tuple(File.of(_path(host, name), text, dynamic=True, minor=True) for name, text in programs.items())


def instruction(host: HostContext, config: Config, requests: Iterable[FileRequest]) -> PeriodicInstruction:
    """`config` is the host's configuration, as for the report."""
    cluster = host.cluster
    directory = directory_of(host, config)
    program = cluster.directories.command(cluster.runtime)
    script = _SCRIPT.format(
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
    return PeriodicInstruction(INSTRUCTION, args=("-c", script), command="sh", periodSeconds=PERIOD)


def _call(request: FileRequest) -> str:
    file = shlex.quote(request.file)
    if request.action == DELETE:
        return f"remove {request.id} {file}"
    return f"verify {request.id} {file} {request.size} {shlex.quote(request.sha256)}"


def _path(host: HostContext, name: str) -> str:
    return f"{host.cluster.directories.distro}{SNAPSHOT_PROGRAMS}{name}"
