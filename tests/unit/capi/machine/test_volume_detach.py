"""Which volumes keep a node from going: on plain objects, without any server."""

from __future__ import annotations

from typing import Any

from remuda.capi.machine.volume_detach import Attached, attachments_of, claims_of, matched, names_on_node

Obj = dict[str, Any]

STARTED = "2027-01-15T08:00:00Z"


def volume(name: str, claim: str = "", *, kind: str = "PersistentVolumeClaim", csi: bool = True) -> Obj:
    spec: Obj = {"csi": {"driver": "disk.test.io", "volumeHandle": f"h-{name}"}} if csi else {"hostPath": {"path": "/x"}}
    if claim:
        namespace, _, claim_name = claim.partition("/")
        spec["claimRef"] = {"kind": kind, "namespace": namespace, "name": claim_name}
    return {"metadata": {"name": name}, "spec": spec}


def attachment(name: str, source: str = "", *, node: str = "n1", attached: bool = True) -> Obj:
    spec: Obj = {"nodeName": node, "attacher": "disk.test.io", "source": {"persistentVolumeName": source} if source else {}}
    return {"metadata": {"name": name}, "spec": spec, "status": {"attached": attached}}


def on_node(*names: str) -> set[str]:
    return {f"kubernetes.io/csi/disk.test.io^h-{name}" for name in names}


def test_a_node_names_what_is_attached_to_it() -> None:
    assert names_on_node({"status": {"volumesAttached": [{"name": "a", "devicePath": ""}, {"name": "b"}, {}]}}) == {"a", "b"}
    assert names_on_node({}) == set()


def test_only_attachments_of_this_node_that_hold_count() -> None:
    held = attachment("a", "pv")
    assert attachments_of([held, attachment("b", "pv", node="n2"), attachment("c", "pv", attached=False)], "n1") == [held]


def test_a_volume_is_found_by_what_the_node_says() -> None:
    assert matched(on_node("pv1"), [], [volume("pv1", "shop/data"), volume("pv2", "shop/other")], ()) == Attached(
        claims=("shop/data",)
    )


def test_a_volume_is_found_by_its_attachment() -> None:
    found = matched((), [attachment("a", "pv1")], [volume("pv1", "shop/data", csi=False)], ())
    assert found == Attached(claims=("shop/data",))


def test_a_volume_that_both_name_is_waited_for_once() -> None:
    found = matched(on_node("pv1"), [attachment("a", "pv1")], [volume("pv1", "shop/data")], ())
    assert found == Attached(claims=("shop/data",))


def test_volumes_of_pods_that_stay_are_not_waited_for() -> None:
    agent = {
        "metadata": {"name": "agent", "namespace": "system"},
        "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "log"}}, {"emptyDir": {}}]},
    }
    assert claims_of([agent]) == {"system/log"}
    assert matched(on_node("pv1"), [attachment("a", "pv1")], [volume("pv1", "system/log")], claims_of([agent])).none


def test_a_volume_without_a_claim_is_waited_for_by_its_own_name() -> None:
    found = matched(on_node("pv1", "pv2"), [], [volume("pv1"), volume("pv2", "shop/x", kind="DataVolume")], ())
    assert found == Attached(unclaimed=("pv1", "pv2"))


def test_what_matches_no_volume_is_waited_for_since_nobody_knows_what_it_is() -> None:
    found = matched({"strange"}, [attachment("a", "lost")], [volume("pv1", "shop/data")], ())
    assert found == Attached(unknown_of_node=("strange",), unknown_of_attachments=("lost",))


def test_an_attachment_that_names_no_volume_is_waited_for_by_its_own_name() -> None:
    assert matched((), [attachment("inline")], [], ()) == Attached(nameless=("inline",))


def test_nothing_attached_is_nothing_to_wait_for() -> None:
    assert matched((), [], [volume("pv1", "shop/data")], ()).none


def test_the_message_lists_each_sort_and_five_names_of_it() -> None:
    found = Attached(
        claims=tuple(f"shop/{number}" for number in range(7)),
        unclaimed=("pv1",),
        unknown_of_node=("strange",),
        unknown_of_attachments=("lost",),
    )
    assert found.message(STARTED) == (
        f"Waiting for Node volumes to be detached (started at {STARTED})\n"
        "* PersistentVolumeClaims: shop/0, shop/1, shop/2, shop/3, shop/4, ... (2 more)\n"
        "* PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim: pv1\n"
        "* Node with .status.volumesAttached entries not matching a PersistentVolume: strange\n"
        "* VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume: lost"
    )
