"""The bootstrap script over SSH, for machines that take no user data (docs/reference/machines.md#bootstrap-of-a-machine): the
host's name first, then it."""

from __future__ import annotations

import base64
import gzip
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from . import ssh
from .driver import DriverContext, Keep, Machine
from .errors import DriverError, Reason

_TRIES, _PAUSE = 60, 3.0
# Programs that the script calls and a bare system may lack.
_CURL = (
    "command -v curl >/dev/null 2>&1 || { "
    "if command -v apt-get >/dev/null; then apt-get update -q && "
    "DEBIAN_FRONTEND=noninteractive apt-get install -yq curl ca-certificates; "
    "elif command -v zypper >/dev/null; then zypper -n install curl; "
    "elif command -v dnf >/dev/null; then dnf install -yq curl; "
    "elif command -v yum >/dev/null; then yum install -yq curl; "
    "fi; }"
)
_LOOPBACK = re.compile(r"^CATTLE_SERVER='(https://(?:127\.[0-9.]+|localhost|\[::1\])(?::[0-9]+)?)'", re.MULTILINE)
_NAME = (
    '[ "$(hostname)" = {name} ] || {{ hostnamectl set-hostname {name} 2>/dev/null || '
    "{{ echo {name} >/etc/hostname && hostname {name}; }}; "
    "grep -q {name} /etc/hosts || echo 127.0.1.1 {name} >>/etc/hosts; }}"
)


def check_reachable(script: str) -> None:
    """Raises DriverError if the script's server is at a loopback address: from the machine that is the machine itself."""
    if found := _LOOPBACK.search(script):
        message = (
            f"the machine can't reach the server at {found[1]}, which is a loopback address: start it with "
            "--listen ADDRESS:PORT, an address of this machine, or change the setting server-url"
        )
        raise DriverError(Reason.INVALID, message)


def login_of(machine: Machine) -> ssh.SshLogin:
    """The SSH login of a machine, from what its driver has kept."""
    key = str(machine.state.get("SSHKeyPath") or "") or str(machine.directory / "id_rsa")
    return ssh.SshLogin(
        machine.address,
        str(machine.state.get("SSHUser") or "root"),
        machine.directory / ssh.KNOWN_HOSTS,
        int(machine.state.get("SSHPort") or 22),
        Path(key) if Path(key).exists() else None,
    )


@asynccontextmanager
async def reached(machine: Machine, keep: Keep, around: DriverContext, tries: int = _TRIES) -> AsyncIterator[ssh.SshShell]:
    """A shell on a machine that may still be coming up. Raises DriverError."""
    login = login_of(machine)
    for attempt in range(1, tries + 1):
        opened = ssh.connect(login, around.clock, around.outbound, lambda: keep({}))
        try:
            shell = await opened.__aenter__()
        except DriverError as error:
            # A user's key may be installed on a new machine later than its SSH server.
            waits = error.retryable or error.reason is Reason.AUTH_FAILED
            if not waits or attempt == tries:
                raise
            if attempt == 1:
                around.say(f"waiting for SSH: {error.message}")
            await around.clock.sleep(_PAUSE)
            continue
        try:
            yield shell
        finally:
            await opened.__aexit__(None, None, None)
        return


async def over_ssh(machine: Machine, script: str, keep: Keep, around: DriverContext) -> None:
    """Run the script; again from the start when the connection breaks. Raises DriverError."""
    for attempt in (1, 2, 3):
        try:
            async with reached(machine, keep, around) as shell:
                await run_script(shell, script, machine.hostname, around)
                return
        except DriverError as error:
            if not error.retryable or attempt == 3:
                raise
            around.say(f"once more: {error.message}")


async def run_script(shell: ssh.SshShell, script: str, hostname: str, around: DriverContext) -> None:
    root = await as_root(shell)
    name = shlex.quote(hostname)
    for command, what in ((_NAME.format(name=name), "the host's name can't be set"), (_CURL, "curl can't be installed")):
        code, said = await shell.run(f"{root} {shlex.quote(command)}")
        if code != 0:
            raise DriverError(Reason.BOOTSTRAP_FAILED, f"{what}: {last_line(said)}")
    # Through the standard input, since it has a token in it.
    place = 'f=$(mktemp /tmp/install_script.XXXXXX) && chmod 600 "$f" && cat >"$f" && { sh "$f"; c=$?; rm -f "$f"; exit $c; }'
    code, said = await shell.run(f"{root} {shlex.quote(place)}", stdin=script, on_line=around.say)
    if code != 0:
        raise DriverError(Reason.BOOTSTRAP_FAILED, f"the bootstrap script failed ({code}): {last_line(said)}")


async def as_root(shell: ssh.SshShell) -> str:
    """The prefix that runs a shell command as root: a plain shell if we are root, else sudo, which must not ask."""
    code, said = await shell.run('[ "$(id -u)" = 0 ] && echo root || sudo -n true')
    if code != 0:
        raise DriverError(
            Reason.PERMISSION_DENIED, f"the SSH user is not root and may not become it: {last_line(said)}", field="sshUser"
        )
    return "sh -c" if said.strip().endswith("root") else "sudo -n sh -c"


def last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


# --- userdata -------------------------------------------------------------------------------------------------------------
#
# The bootstrap script put into a user's user data, as rancher-machine does it (docs/reference/machines.md#user-data). Pure.
#
# The user's text is not parsed and written again but stays as it is, node by node: `0644` and `yes` keep the meaning that they
# have for cloud-init, even if another program's YAML reads them otherwise.

_SHEBANG = re.compile(rb"\A#!.*\n")
_LINUX = ("sh", "/usr/local/custom_script/install.sh", "hostname")
_WINDOWS = ("powershell", "C:\\install.ps1", "set_hostname")
_TEXT = "tag:yaml.org,2002:str"


class UserdataError(ValueError):
    """User data that no script can be put into; the text says why."""


def merged(userdata: bytes, script: bytes, name: str, hostname: str = "", system: str = "linux") -> bytes:
    """Cloud-config that carries out the user's data and then runs the script; raises UserdataError."""
    script = _SHEBANG.sub(b"", script)
    if userdata.startswith(b"#!"):
        return _cloud_config(_mapping(), _SHEBANG.sub(b"", userdata) + b"\n\n" + script, hostname or name, system)
    if not userdata:
        return _cloud_config(_mapping(), script, hostname or name, system)
    if not userdata.startswith(b"#cloud-config"):
        raise UserdataError("existing userdata file does not begin with '#!' or '#cloud-config'")
    return _cloud_config(_parsed(userdata), script, hostname or name, system)


def _cloud_config(root: yaml.MappingNode, script: bytes, hostname: str, system: str) -> bytes:
    command, path, key = _WINDOWS if "windows" in system else _LINUX
    if _found(root, key) is None:
        root.value.append((_text(key), _text(hostname)))
    file = {
        "content": base64.b64encode(gzip.compress(script, mtime=0)).decode(),
        "encoding": "gzip+b64",
        "path": path,
        "permissions": "0644",
    }
    _listed(root, "write_files").value.append(_mapping([(_text(each), _text(value)) for each, value in file.items()]))
    _listed(root, "runcmd").value.append(_text(f"{command} {path}"))
    root.value.sort(key=lambda pair: str(pair[0].value))
    return b"#cloud-config\n" + _dumped(root)


def _parsed(userdata: bytes) -> yaml.MappingNode:
    try:
        root = yaml.compose(userdata, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = error.problem_mark.line + 1 if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark else 0
        what = error.problem if isinstance(error, yaml.MarkedYAMLError) else "it is no text"
        raise UserdataError(f"the user data is no YAML: {f'line {where}: ' if where else ''}{what}") from None
    if root is None:
        return _mapping()
    if not isinstance(root, yaml.MappingNode):
        raise UserdataError("the user data is no cloud-config: it must be a mapping")
    keys = [key.value for key, _ in root.value]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise UserdataError(f"the user data has {twice} twice")
    root.flow_style = False
    return root


def _found(root: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for each, value in root.value if each.value == key), None)


def _listed(root: yaml.MappingNode, key: str) -> yaml.SequenceNode:
    """The list of this name, made if there is none."""
    value = _found(root, key)
    if isinstance(value, yaml.SequenceNode):
        value.flow_style = False
        return value
    if value is not None and not (isinstance(value, yaml.ScalarNode) and value.value in ("", "~", "null")):
        raise UserdataError(f"unable to get {key} from cloud-config YAML")
    made = yaml.SequenceNode("tag:yaml.org,2002:seq", [], flow_style=False)
    root.value[:] = [(each, held) for each, held in root.value if each.value != key]
    root.value.append((_text(key), made))
    return made


def _mapping(pairs: list[tuple[yaml.Node, yaml.Node]] | None = None) -> yaml.MappingNode:
    return yaml.MappingNode("tag:yaml.org,2002:map", list(pairs or ()), flow_style=False)


def _text(value: str) -> yaml.ScalarNode:
    """A string that is read as one; quoted only if it must be."""
    return yaml.ScalarNode(_TEXT, value, style=None if isinstance(yaml.safe_load(value), str) else '"')


class _Dumper(yaml.SafeDumper):
    """Lists are indented below their key, and items follow their dash, as in Go's YAML."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        outside = self.indent
        super().increase_indent(flow, False)
        if self.sequence_context and outside is not None and not flow:
            self.indent = outside + 2


def _dumped(root: yaml.MappingNode) -> bytes:
    text = yaml.serialize(root, Dumper=_Dumper, indent=4, width=float("inf"), allow_unicode=True)
    return str(text).encode()
