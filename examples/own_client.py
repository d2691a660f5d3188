"""The kubectl lines of `api_tour.py`, on Remuda's own client: an example of its use, for machines without kubectl.

It supports `apply [--server-side]`, `wait`, `get [-o json] [--watch]` and `delete` for a few kinds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

from remuda.client.https import HttpsClient
from remuda.kube.encoding import jsonio, yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, dig, name_of, namespace_of, with_metadata

Obj = dict[str, Any]

HORSES = GroupVersionResource("ranch.example", "v1", "horses")
# By the names that kubectl accepts, and by kind.
RESOURCES = {
    "customresourcedefinition": GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    "horse": HORSES,
    "namespace": GroupVersionResource("", "v1", "namespaces"),
    "secret": GroupVersionResource("", "v1", "secrets"),
    "cluster.management.cattle.io": GroupVersionResource("management.cattle.io", "v3", "clusters"),
    "cluster.provisioning.cattle.io": GroupVersionResource("provisioning.cattle.io", "v1", "clusters"),
}
NAMESPACED = ("horse", "secret", "cluster.provisioning.cattle.io")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="own_client")
    verbs = parser.add_subparsers(dest="verb", required=True)
    apply = verbs.add_parser("apply", parents=[scope()])
    apply.add_argument("-f", dest="file", type=Path, required=True)
    apply.add_argument("--server-side", action="store_true")
    apply.add_argument("--field-manager", default="demo")
    apply.add_argument("--force-conflicts", action="store_true")
    wait = verbs.add_parser("wait", parents=[scope()])
    wait.add_argument("--for", dest="condition", required=True)
    wait.add_argument("--timeout")
    wait.add_argument("target")
    get = verbs.add_parser("get", parents=[scope()])
    get.add_argument("kind")
    get.add_argument("name", nargs="?")
    get.add_argument("--watch", action="store_true")
    get.add_argument("-o", dest="output", choices=["json"])
    delete = verbs.add_parser("delete", parents=[scope()])
    delete.add_argument("kind")
    delete.add_argument("name")
    return parser.parse_args(arguments)


def scope() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-n", "--namespace", default="default")
    return parser


def known(word: str) -> str:
    """The name in `RESOURCES` for `crd`, `horses` or `clusters.management.cattle.io`."""
    first, dot, group = word.partition(".")
    name = {"crd": "customresourcedefinition"}.get(first.removesuffix("s"), first.removesuffix("s") + dot + group)
    if name not in RESOURCES:
        raise ApiError(404, "NotFound", f"this client does not support {word}")
    return name


def kind_of(obj: Obj) -> str:
    kind = GroupVersionKind.of(obj)
    return known(kind.kind.lower() if kind.kind.lower() in RESOURCES else f"{kind.kind.lower()}.{kind.group}")


def place(kind: str, options: argparse.Namespace) -> str:
    return options.namespace if kind in NAMESPACED else ""


def full_name(obj: Obj) -> str:
    kind = GroupVersionKind.of(obj)
    return f"{kind.kind.lower()}.{kind.group}/{name_of(obj)}"


def row(obj: Obj) -> str:
    if GroupVersionKind.of(obj).kind != "Horse":
        return name_of(obj)
    spec = obj["spec"]
    return f"{name_of(obj):10} {spec.get('coat', ''):10} {spec.get('hands', ''):<6} {spec.get('rider', '')}".rstrip()


HEADER = f"{'NAME':10} {'COAT':10} {'HANDS':6} RIDER"


async def apply(client: HttpsClient, options: argparse.Namespace) -> None:
    for document in yamlio.loads_all(options.file.read_text()):
        kind, obj = kind_of(document), document
        if kind in NAMESPACED and not namespace_of(obj):
            obj = with_metadata(obj, namespace=options.namespace)
        if options.server_side:
            await client.apply(RESOURCES[kind], obj, field_manager=options.field_manager, force=options.force_conflicts)
            print(f"{full_name(obj)} serverside-applied")
        else:
            await client.create(RESOURCES[kind], obj, field_manager=options.field_manager)
            print(f"{full_name(obj)} created")


async def wait(client: HttpsClient, options: argparse.Namespace) -> None:
    word, _, name = options.target.rpartition("/")
    kind, wanted = known(word), options.condition.removeprefix("condition=")
    resource, namespace = RESOURCES[kind], place(kind, options)
    found = await client.get(resource, name, namespace)
    while not holds(found, wanted):
        after = found["metadata"]["resourceVersion"]
        watch = client.watch(resource, namespace, fields=f"metadata.name={name}", resource_version=after)
        async with contextlib.aclosing(watch) as events:  # type: ignore[type-var]
            async for event in events:
                if event.type != "BOOKMARK" and holds(found := event.object, wanted):
                    break
    print(f"{full_name(found)} condition met")


def holds(obj: Obj, wanted: str) -> bool:
    conditions = dig(obj, "status", "conditions", default=[])
    return any(condition["type"] == wanted and condition["status"] == "True" for condition in conditions)


async def get(client: HttpsClient, options: argparse.Namespace) -> None:
    kind = known(options.kind)
    resource, namespace = RESOURCES[kind], place(kind, options)
    if options.name and options.output == "json":
        print(jsonio.dumps_text(await client.get(resource, options.name, namespace)))
        return
    print(HEADER if resource is HORSES else "NAME", flush=True)
    if options.name:
        print(row(await client.get(resource, options.name, namespace)))
        return
    listed = await client.list(resource, namespace)
    for obj in listed["items"]:
        print(row({"kind": listed["kind"].removesuffix("List"), "apiVersion": listed["apiVersion"], **obj}), flush=True)
    revision = listed["metadata"]["resourceVersion"]
    while options.watch:
        async for event in client.watch(resource, namespace, resource_version=revision):
            revision = event.object["metadata"]["resourceVersion"]
            if event.type != "BOOKMARK":
                print(row(event.object), flush=True)


async def delete(client: HttpsClient, options: argparse.Namespace) -> None:
    kind = known(options.kind)
    await client.delete(RESOURCES[kind], options.name, place(kind, options))
    print(f'{options.kind} "{options.name}" deleted')


async def main() -> int:
    options = parse(sys.argv[1:])
    async with HttpsClient.from_kubeconfig() as client:
        try:
            await {"apply": apply, "wait": wait, "get": get, "delete": delete}[options.verb](client, options)
        except ApiError as error:
            print(f"Error from server ({error.reason}): {error.message}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
