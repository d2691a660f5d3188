"""Record which flags the components of Kubernetes have (`component_flags.json`), from their sources.

Run as `python -m tests.real.describe_component_flags 1.36=FOLDER …` with one folder for each minor version, oldest first, when
Remuda gets to support another one. A folder has the unpacked Go modules `k8s.io/kubernetes`, `apiserver`, `component-base`,
`cloud-provider` and `controller-manager` of that version, as the module proxy serves them (`k8s.io/kubernetes@v1.36.3` …).

A component ends at a flag that it does not know. Its name may be a constant or be put together, so every word in the sources of
its options counts: the record has a few words that are no flags, and lacks no flag. `test_component_flags.py` compares it with
the programs of the pinned version. The type of a flag is recorded where one call says it, and no other call says another one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parents[2] / "src/remuda/provisioning/releases/component_flags.json"

# Where flags are declared. Folders that a version does not have are skipped.
_SHARED = ("component-base",)
_GENERIC = ("apiserver/pkg/server/options", "apiserver/pkg/util", "controller-manager")
FOLDERS: Mapping[str, tuple[str, ...]] = {
    "kubelet": (*("kubernetes/cmd/kubelet", "kubernetes/pkg/kubelet/config", "kubernetes/pkg/credentialprovider", *_SHARED),),
    "kube-apiserver": (
        *(
            "kubernetes/cmd/kube-apiserver",
            "kubernetes/pkg/kubeapiserver/options",
            "kubernetes/pkg/controlplane/apiserver/options",
        ),
        *("kubernetes/plugin/pkg/admission", "kubernetes/pkg/serviceaccount", "apiserver/plugin", *_GENERIC, *_SHARED),
    ),
    "kube-controller-manager": ("kubernetes/cmd/kube-controller-manager", "cloud-provider/options", *_GENERIC, *_SHARED),
    "kube-scheduler": ("kubernetes/cmd/kube-scheduler", *_GENERIC, *_SHARED),
    "kube-proxy": ("kubernetes/cmd/kube-proxy", "kubernetes/pkg/proxy/apis", *_SHARED),
}
# Two families of names that are put together: `audit-%s-…` for the log and the webhook.
_AUDIT = ("log", "webhook")

# Comments, and packages that are imported.
_NO_FLAGS = re.compile(r'(?m)^\s*//.*$|^\s*(?:\w+ |import )*"[^"]*"$')
_WORD = re.compile(r'"([a-z][a-z0-9]*(?:[-_][a-z0-9]+)*|audit-%s(?:-[a-z]+)+)"')
_CALL = re.compile(r'\.(?P<call>\w+)\(\s*(?:[^,"\n]*,\s*)?"(?P<name>[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*)",')
_INTEGER = re.compile(r"(Int|Int32|Int64|Uint|Uint32|Uint64)(Var)?P?")
_KINDS = {re.compile(r"Bool(Var)?P?"): "bool", _INTEGER: "int", re.compile(r"Duration(Var)?P?"): "duration"}
_TYPED = re.compile(r"[A-Z]\w*?(Var|VarP)|Var|(Bool|String|Int|Int32|Int64|Uint|Duration|Float32|Float64)P?")

# By component and flag: the type, or "", and the minor versions that have it.
Found = dict[str, dict[str, tuple[str, list[str]]]]


def described(sources: Mapping[str, Path]) -> dict[str, Any]:
    """The record; a flag that only some of the versions have says which."""
    found: Found = {component: {} for component in FOLDERS}
    for minor, root in sources.items():
        for component, folders in FOLDERS.items():
            for name, kind in _words(root, folders).items():
                before, minors = found[component].get(name, (kind, []))
                found[component][name] = (kind if kind == before else "", [*minors, minor])
    every = list(sources)
    components = {
        component: {name: _said(kind, minors, every) for name, (kind, minors) in sorted(flags.items())}
        for component, flags in found.items()
    }
    return {"minors": every, "components": components}


def _said(kind: str, minors: list[str], every: list[str]) -> dict[str, Any]:
    return {**({"type": kind} if kind else {}), **({"minors": minors} if minors != every else {})}


def _words(root: Path, folders: tuple[str, ...]) -> dict[str, str]:
    """The words in these folders, as flags are written, and their types."""
    kinds: dict[str, set[str]] = {}
    for text in _texts(root, folders):
        for word in _WORD.findall(text):
            for name in [word.replace("%s", each) for each in _AUDIT] if "%s" in word else [word]:
                kinds.setdefault(name.replace("_", "-"), set())
        for call in _CALL.finditer(text):
            if _TYPED.fullmatch(call["call"]):
                kinds.setdefault(call["name"].replace("_", "-"), set()).add(_kind(call["call"]))
    return {name: next(iter(said)) if len(said) == 1 else "" for name, said in kinds.items()}


def _texts(root: Path, folders: tuple[str, ...]) -> Iterator[str]:
    for folder in folders:
        module, _, rest = folder.partition("/")
        for place in sorted(root.rglob(f"k8s.io/{module}@*")):
            for path in sorted((place / rest).rglob("*.go")):
                if not path.name.endswith("_test.go") and "testing" not in path.parts:
                    yield _NO_FLAGS.sub("", path.read_text())


def _kind(call: str) -> str:
    return next((kind for pattern, kind in _KINDS.items() if pattern.fullmatch(call)), "")


def text(record: Mapping[str, Any]) -> str:
    """One flag a line."""
    components = []
    for component, flags in record["components"].items():
        lines = ",\n".join(f"   {json.dumps(name)}: {json.dumps(said)}" for name, said in flags.items())
        components.append(f"  {json.dumps(component)}: {{\n{lines}\n  }}")
    return f'{{\n "minors": {json.dumps(record["minors"])},\n "components": {{\n' + ",\n".join(components) + "\n }\n}\n"


if __name__ == "__main__":
    RECORD.write_text(text(described({minor: Path(path) for minor, _, path in (each.partition("=") for each in sys.argv[1:])})))
