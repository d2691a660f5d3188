from __future__ import annotations

import pytest

from remuda.capi.kubernetes_versions import KubernetesVersion, VersionError, parse


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.33.1", KubernetesVersion(1, 33, 1)),
        ("0.0.0", KubernetesVersion(0, 0, 0)),
        ("1.33.1+rke2r1", KubernetesVersion(1, 33, 1, (), ("rke2r1",))),
        ("1.33.1-rc.0+a.b-c", KubernetesVersion(1, 33, 1, ("rc", "0"), ("a", "b-c"))),
        ("1.2.3--", KubernetesVersion(1, 2, 3, ("-",))),
        ("1.2.3-0a+007", KubernetesVersion(1, 2, 3, ("0a",), ("007",))),
    ],
)
def test_versions_are_read_and_shown_again(text: str, version: KubernetesVersion) -> None:
    assert parse(text) == version
    assert str(version) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.2.03", "1.2.3-", "1.2.3+", "1.2.3-01", "1.2.3-a..b", "1.2.3+a..b"),
        *("1.2.3 ", "1.2.x", "1.2.3-é", "1.2.18446744073709551616", "1.2.3-18446744073709551616", "١.2.3"),
    ],
)
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(VersionError):
        parse(text)
