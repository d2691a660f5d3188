"""The text of the service's unit. Pure.

It is shut in as far as the server's own work allows. Jobs that make machines at clouds are processes of the service: they need
Landlock's system calls, limits, and nothing more. As `root`, Jobs get users of their own, which takes a few capabilities.
Machines of the drivers `local` and `container` are this machine's processes: what they run is not known, and they have to stay
while the server restarts, so `local_machines` gives up what would be in their way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from remuda import __version__

MARK = "# Written by `remuda install`"
# With the version in it, another one changes the unit, and the service is restarted.
_HEAD = """\
{mark}; `remuda uninstall` takes it away. The next `remuda install` writes it anew:
# what is changed by hand belongs into a file of its own (systemctl edit {name}).
[Unit]
Description=Remuda {version}
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart={command}
Restart=always
RestartSec=2
TimeoutStartSec=300
TimeoutStopSec=120
"""
# A Job that takes too much memory is killed alone.
_ALWAYS = """\
OOMPolicy=continue
LimitNOFILE=262144
UMask=0077

ProtectSystem=strict
ProtectHome={home}
ProtectProc=invisible
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectClock=yes
ProtectHostname=yes
RestrictRealtime=yes
SystemCallArchitectures=native
"""
# What programs of machines on this machine could not live with.
_CONFINED = """\
KillMode=mixed
PrivateTmp=yes
PrivateDevices=yes
ProtectControlGroups=yes
NoNewPrivileges=yes
RestrictNamespaces=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service landlock_create_ruleset landlock_add_rule landlock_restrict_self
"""
_INSTALL = "\n[Install]\nWantedBy=multi-user.target\n"
# Users for Jobs, directories that are theirs, and their end.
_ROOT_CAPABILITIES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID")
_LOW_PORTS = 1024
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@+*-]+")


@dataclass(frozen=True, slots=True)
class Service:
    """`program` and `options` are what is run; `writable` are directories besides those that systemd makes for it."""

    name: str
    program: tuple[str, ...]
    options: tuple[str, ...]
    user: str
    data_dir: Path
    port: int = 8443
    writable: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    local_machines: bool = False
    # The program is below somebody's home.
    at_home: bool = False

    @property
    def unit(self) -> str:
        return f"{self.name}.service"

    @property
    def state_directory(self) -> bool:
        """Whether systemd makes the data directory, and hands it to the user."""
        return self.data_dir == Path("/var/lib") / self.name


def unit_file(service: Service) -> str:
    command = " ".join(quoted(word) for word in (*service.program, "serve", *_place(service), *service.options))
    parts = [_HEAD.format(mark=MARK, name=service.name, version=__version__, command=command), _who(service), _places(service)]
    parts.append(_ALWAYS.format(home="read-only" if service.at_home else "yes"))
    if service.local_machines:
        # They go on while it restarts; who has which address is noted for all of the machine (remuda.hosts.addresses).
        parts.append("KillMode=process\nReadWritePaths=/tmp /var/tmp\n")
    else:
        parts.append(_CONFINED)
        if service.user != "root":
            parts.append("SystemCallFilter=~@privileged\n")
    return "".join([*parts, _capabilities(service), _INSTALL])


def quoted(word: str) -> str:
    """A word of a command line, as systemd reads it."""
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$").replace("\n", "\\n")
    return f'"{escaped}"'


def _place(service: Service) -> tuple[str, ...]:
    said = any(word == "--data-dir" or word.startswith("--data-dir=") for word in service.options)
    return () if said else ("--data-dir", str(service.data_dir))


def _who(service: Service) -> str:
    groups = f"SupplementaryGroups={' '.join(service.groups)}\n" if service.groups else ""
    return f"User={service.user}\n{groups}EnvironmentFile=-/etc/default/{service.name}\n"


def _places(service: Service) -> str:
    lines = [f"Environment=HOME={quoted(str(service.data_dir))} XDG_CACHE_HOME=/var/cache"]
    if service.state_directory:
        lines += [f"StateDirectory={service.name}", "StateDirectoryMode=0700"]
    lines += ["CacheDirectory=remuda"]
    lines += [f"ReadWritePaths={quoted(path)}" for path in service.writable]
    return "\n".join(lines) + "\n"


def _capabilities(service: Service) -> str:
    low = ("CAP_NET_BIND_SERVICE",) if 0 < service.port < _LOW_PORTS else ()
    if service.user == "root":
        # Machines on this machine may need whatever root has.
        return "" if service.local_machines else f"CapabilityBoundingSet={' '.join((*_ROOT_CAPABILITIES, *low))}\n"
    return f"CapabilityBoundingSet={' '.join(low)}\nAmbientCapabilities={' '.join(low)}\n"
