"""The bootstrap script put into a person's user data, as rancher-machine does it (protocols.md §5.5). Pure.

What the person wrote is not read as values and written again but stays as it is written, node by node: `0644` and `yes` mean to
cloud-init what they mean in a file, whatever another program's YAML thinks of them.
"""

from __future__ import annotations

import base64
import gzip
import re

import yaml

_SHEBANG = re.compile(rb"\A#!.*\n")
_LINUX = ("sh", "/usr/local/custom_script/install.sh", "hostname")
_WINDOWS = ("powershell", "C:\\install.ps1", "set_hostname")
_TEXT = "tag:yaml.org,2002:str"


class UserdataError(ValueError):
    """User data that no script can be put into; the text says why."""


def merged(userdata: bytes, script: bytes, name: str, hostname: str = "", system: str = "linux") -> bytes:
    """Cloud-config that does what the person wants and then runs the script; raises UserdataError."""
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
    """Lists stand in from their key, and what is in a list follows its dash, as Go's YAML has them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        outside = self.indent
        super().increase_indent(flow, False)
        if self.sequence_context and outside is not None and not flow:
            self.indent = outside + 2


def _dumped(root: yaml.MappingNode) -> bytes:
    text = yaml.serialize(root, Dumper=_Dumper, indent=4, width=float("inf"), allow_unicode=True)
    return str(text).encode()
