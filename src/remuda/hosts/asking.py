"""`python -m remuda.hosts.asking DIRECTORY PROGRAM …`: implements `systemctl` and a few others in a host (:mod:`.shims`)."""

from __future__ import annotations

import sys
from pathlib import Path

from . import control_socket
from .errors import HostError
from .host_directory import Place


def main(arguments: list[str]) -> int:
    place, program, *given = Place(Path(arguments[0])), *arguments[1:]
    if program == "journalctl":
        return _journal(place, given)
    wanted = {"reboot": ["reboot"], "poweroff": ["poweroff"], "shutdown": _shutdown(given)}.get(program, given)
    try:
        code, out, err = control_socket.ask(place.control, wanted)
    except HostError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command's voice
        return 1
    for text, stream in ((out, sys.stdout), (err, sys.stderr)):
        if text:
            print(text, file=stream)
    return code


def _shutdown(given: list[str]) -> list[str]:
    return ["reboot"] if "-r" in given or "--reboot" in given else ["poweroff"]


def _journal(place: Place, given: list[str]) -> int:
    from .units.journal import tail
    from .units.unit_catalog import full_name

    units, count = [], None
    words = iter(given)
    for word in words:
        option, equals, value = word.partition("=")
        if option in ("-u", "--unit"):
            units.append(full_name(value if equals else next(words, "")))
        elif option in ("-n", "--lines"):
            said = value if equals else next(words, "")
            count = int(said) if said.isdigit() else None
        elif option in ("-o", "--output", "-S", "--since", "-U", "--until", "-p", "--priority") and not equals:
            next(words, "")
    for path in [place.log_of(unit) for unit in units] or sorted(place.logs.glob("*.log")):
        for line in tail(path, count):
            print(line)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
