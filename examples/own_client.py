"""The few kubectl lines of the demo, on Remuda's own client: an example of how to use it, and the demo's way without kubectl.

It knows `apply [--server-side]`, `wait`, `get [--watch]` and `delete` for the kinds in `horses/`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

from remuda.client.https import HttpsClient
from remuda.kube import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, dig, name_of, with_metadata

Obj = dict[str, Any]

CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
HORSES = GroupVersionResource("ranch.example", "v1", "horses")
NAMESPACES = {CRDS: "", HORSES: "default"}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="own_client")
    verbs = parser.add_subparsers(dest="verb", required=True)
    apply = verbs.add_parser("apply")
    apply.add_argument("-f", dest="file", type=Path, required=True)
    apply.add_argument("--server-side", action="store_true")
    apply.add_argument("--field-manager", default="demo")
    apply.add_argument("--force-conflicts", action="store_true")
    wait = verbs.add_parser("wait")
    wait.add_argument("--for", dest="condition", required=True)
    wait.add_argument("--timeout")
    wait.add_argument("target")
    get = verbs.add_parser("get")
    get.add_argument("kind")
    get.add_argument("name", nargs="?")
    get.add_argument("--watch", action="store_true")
    delete = verbs.add_parser("delete")
    delete.add_argument("kind")
    delete.add_argument("name")
    return parser.parse_args(arguments)


def resource_of(obj: Obj) -> GroupVersionResource:
    return CRDS if GroupVersionKind.of(obj).kind == "CustomResourceDefinition" else HORSES


def placed(obj: Obj) -> Obj:
    namespace = NAMESPACES[resource_of(obj)]
    return with_metadata(obj, namespace=namespace) if namespace else obj


def full_name(obj: Obj) -> str:
    kind = GroupVersionKind.of(obj)
    return f"{kind.kind.lower()}.{kind.group}/{name_of(obj)}"


def row(obj: Obj) -> str:
    spec = obj["spec"]
    return f"{name_of(obj):10} {spec.get('coat', ''):10} {spec.get('hands', ''):<6} {spec.get('rider', '')}".rstrip()


HEADER = f"{'NAME':10} {'COAT':10} {'HANDS':6} RIDER"


async def apply(client: HttpsClient, options: argparse.Namespace) -> None:
    for document in yamlio.loads_all(options.file.read_text()):
        obj = placed(document)
        if options.server_side:
            await client.apply(resource_of(obj), obj, field_manager=options.field_manager, force=options.force_conflicts)
            print(f"{full_name(obj)} serverside-applied")
        else:
            await client.create(resource_of(obj), obj, field_manager=options.field_manager)
            print(f"{full_name(obj)} created")


async def wait(client: HttpsClient, options: argparse.Namespace) -> None:
    name, wanted = options.target.rpartition("/")[2], options.condition.removeprefix("condition=")
    found = await client.get(CRDS, name)
    while not holds(found, wanted):
        after = found["metadata"]["resourceVersion"]
        async with contextlib.aclosing(client.watch(CRDS, fields=f"metadata.name={name}", resource_version=after)) as events:  # type: ignore[type-var]
            async for event in events:
                if event.type != "BOOKMARK" and holds(found := event.object, wanted):
                    break
    print(f"{full_name(found)} condition met")


def holds(obj: Obj, wanted: str) -> bool:
    conditions = dig(obj, "status", "conditions", default=[])
    return any(condition["type"] == wanted and condition["status"] == "True" for condition in conditions)


async def get(client: HttpsClient, options: argparse.Namespace) -> None:
    print(HEADER, flush=True)
    if options.name:
        print(row(await client.get(HORSES, options.name, NAMESPACES[HORSES])))
        return
    listed = await client.list(HORSES, NAMESPACES[HORSES])
    for obj in listed["items"]:
        print(row(obj), flush=True)
    revision = listed["metadata"]["resourceVersion"]
    while options.watch:
        async for event in client.watch(HORSES, NAMESPACES[HORSES], resource_version=revision):
            revision = event.object["metadata"]["resourceVersion"]
            if event.type != "BOOKMARK":
                print(row(event.object), flush=True)


async def delete(client: HttpsClient, options: argparse.Namespace) -> None:
    await client.delete(HORSES, options.name, NAMESPACES[HORSES])
    print(f'horse.ranch.example "{options.name}" deleted')


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
