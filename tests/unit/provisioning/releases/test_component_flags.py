"""Which entries of `kubelet-arg` and its like a component would end at."""

from __future__ import annotations

import json

import pytest

from remuda.provisioning.releases import catalog
from remuda.provisioning.releases.component_flags import why_fatal
from tests.real.describe_component_flags import RECORD, described, text

UNKNOWN, NUMBER = "kubelet 1.34 has no flag max-prods", "kubelet takes a whole number for max-pods"


@pytest.mark.parametrize(
    ("argument", "entry", "minor", "why"),
    [
        ("kubelet-arg", "max-pods=250", "1.34", ""),
        ("kubelet-arg", "--max-pods=0xfa", "1.34", ""),
        ("kubelet-arg", "max_pods=250", "1.34", ""),
        ("kubelet-arg", "max-prods=250", "1.34", UNKNOWN),
        ("kubelet-arg", "--max-prods", "1.34", UNKNOWN),
        ("kubelet-arg", "max-pods=many", "1.34", NUMBER),
        ("kubelet-arg", "max-pods", "1.34", NUMBER),
        ("kubelet-arg", "seccomp-default", "1.34", ""),
        ("kubelet-arg", "seccomp-default=yes", "1.34", "kubelet takes true or false for seccomp-default"),
        ("kubelet-arg", "sync-frequency=1m30s", "1.34", ""),
        ("kubelet-arg", "sync-frequency=90", "1.34", "kubelet takes a duration such as 10s for sync-frequency"),
        ("kubelet-arg", "v=2", "1.34", ""),
        # One more value beside the distribution's own.
        ("kubelet-arg", "feature-gates+=A=true", "1.34", ""),
        ("kube-apiserver-arg", "audit-webhook-batch-max-wait=1s", "1.36", ""),
        ("kube-apiserver-arg", "cloud-provider=external", "1.32", ""),
        ("kube-apiserver-arg", "cloud-provider=external", "1.33", "kube-apiserver 1.33 has no flag cloud-provider"),
        ("kube-controller-manager-arg", "node-monitor-grace-period=20s", "1.35", ""),
        ("kube-scheduler-arg", "max-pods=5", "1.35", "kube-scheduler 1.35 has no flag max-pods"),
        ("kube-proxy-arg", "proxy-mode=ipvs", "1.33", ""),
        # What the data does not say is not judged.
        ("kubelet-arg", "max-prods=250", "1.99", ""),
        ("etcd-arg", "made-up=1", "1.34", ""),
        ("tls-san", "made-up", "1.34", ""),
        ("kubelet-arg", "", "1.34", ""),
    ],
)
def test_an_entry_is_judged_by_the_flags_of_its_component(argument: str, entry: str, minor: str, why: str) -> None:
    assert why_fatal(argument, entry, minor) == why


def test_every_minor_version_of_the_release_data_is_judged() -> None:
    releases = [each for listed in catalog.built_in().by_runtime.values() for each in listed]
    assert releases
    for release in releases:
        assert release.fatal_values("kubelet-arg", ["max-prods=1", "max-pods=1"]).keys() == {"max-prods=1"}, release.version


def test_the_record_is_as_the_program_writes_it() -> None:
    record = RECORD.read_text()
    assert record == text(json.loads(record))


SOURCES = {
    "1.1": """
import "strings"

const name = "constant-name"
// "in-a-comment"
func Add(fs *pflag.FlagSet) {
	fs.StringVar(&o.a, name, o.a, "the usage")
	fs.BoolVar(&o.b, "removed", o.b, "")
	fs.Int32Var(&o.c, "with_underscore", o.c, "")
	fs.DurationVar(&o.d.Duration, "a-time", o.d.Duration, "")
	fs.StringVar(&o.e, fmt.Sprintf("audit-%s-mode", x), o.e, "")
}
""",
    "1.2": """
func Add(fs *pflag.FlagSet) {
	fs.StringVar(&o.a, "constant-name", o.a, "")
	fs.Int32Var(&o.c, "with_underscore", o.c, "")
	fs.StringVar(&o.d, "a-time", o.d, "")
	fs.StringVar(&o.e, fmt.Sprintf("audit-%s-mode", x), o.e, "")
}
""",
}


def test_flags_are_read_in_sources(tmp_path_factory: pytest.TempPathFactory) -> None:
    roots = {}
    for minor, source in SOURCES.items():
        roots[minor] = tmp_path_factory.mktemp("sources")
        folder = roots[minor] / f"k8s.io/kubernetes@v{minor}.0/cmd/kubelet/app"
        folder.mkdir(parents=True)
        (folder / "options.go").write_text(source)
        (folder / "options_test.go").write_text('var x = "of-a-test"')
    record = described(roots)
    assert record["minors"] == ["1.1", "1.2"]
    assert record["components"]["kubelet"] == {
        "a-time": {},
        "audit-log-mode": {},
        "audit-webhook-mode": {},
        "constant-name": {},
        "removed": {"type": "bool", "minors": ["1.1"]},
        "with-underscore": {"type": "int"},
    }
    assert record["components"]["kube-proxy"] == {}
