"""Jobs: pods until enough of them have succeeded, or too many have failed (:mod:`.job_progress`).

Left out: indexed completion, and the policies by index or by exit code.
"""

from __future__ import annotations

from typing import Any, Final

from remuda.kube.builtin_resources import JOBS, PODS
from remuda.kube.clock import time_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, finalizers_of, find_by, is_being_deleted, name_of, namespace_of
from remuda.kube.owners import has_finalizer
from remuda.kube.selectors import parse_labels
from remuda.runtime import DONE, NORMAL, WARNING, Manager, Result

from .job_progress import FINALIZER, is_finished, progress, with_fewer
from .pod_adoption import BURST, Owning
from .pods import MANAGER, is_active, name_prefix, pod_from

Obj = dict[str, Any]
_JOB_NAME: Final = "batch.kubernetes.io/job-name"


class Jobs(Owning):
    def __init__(self, manager: Manager) -> None:
        super().__init__(manager, "job", "Job", JOBS, PODS)
        self._events = manager.recorder("job-controller")
        self._client = manager.client

    async def look(self, found: Obj) -> Result:
        if dig(found, "spec", "managedBy") or dig(found, "spec", "completionMode") == "Indexed":
            return DONE
        pods = await self.made.claimed(found)
        if is_finished(found) or is_being_deleted(found):
            await self._let_go([pod for pod in pods if not is_active(pod) or is_being_deleted(found)])
            return await self._expire(found) if is_finished(found) else DONE
        step = progress(found, pods, self.clock.time())
        for pod in step.stop:
            await self.made.drop(found, pod)
        template = dig(found, "spec", "template") or {}
        meta = {**(template.get("metadata") or {}), "finalizers": [FINALIZER]}
        pod = pod_from({**template, "metadata": meta}, found, generateName=name_prefix(found))
        made, problem = await self._start(found, pod, step.start)
        after = await self.made.write_status(JOBS, self.owners, found, with_fewer(step.status, step.start - made))
        await self._let_go(step.counted)
        if problem is not None:
            # Only now: finished pods lose their finalizer even if no others can be made, or their namespace would never go.
            raise problem
        if is_finished(after):
            self._tell(after)
            return await self._expire(after)
        return Result(after=step.after)

    async def _start(self, job: Obj, pod: Obj, count: int) -> tuple[int, ApiError | None]:
        """The number of pods created, and the error that stopped the creation."""
        for number in range(min(count, BURST)):
            try:
                await self.made.make(job, pod)
            except ApiError as error:
                return number, error
        return min(count, BURST), None

    def _tell(self, job: Obj) -> None:
        failed = find_by(dig(job, "status", "conditions") or (), "type", "Failed")
        if failed is not None:
            self._events.event(job, WARNING, failed["reason"], failed["message"])
        else:
            self._events.event(job, NORMAL, "Completed", "Job completed")

    async def _let_go(self, pods: list[Obj]) -> None:
        for pod in pods:
            if not has_finalizer(pod, FINALIZER):
                continue
            kept = [each for each in finalizers_of(pod) if each != FINALIZER]
            try:
                patch = {"metadata": {"finalizers": kept}}
                await self._client.patch(PODS, name_of(pod), patch, namespace_of(pod), field_manager=MANAGER)
            except ApiError as error:
                if not error.is_not_found:
                    raise

    async def gone(self, key: Key) -> None:
        """Removes the finalizers of a deleted Job's pods, since no controller will count them."""
        left = [
            pod
            for pod in self.made.informer.select(parse_labels(f"{_JOB_NAME}={key.name}"), key.namespace)
            if has_finalizer(pod, FINALIZER)
        ]
        await self._let_go(left)

    async def _expire(self, job: Obj) -> Result:
        seconds = dig(job, "spec", "ttlSecondsAfterFinished")
        if seconds is None or is_being_deleted(job):
            return DONE
        ends = [each for each in dig(job, "status", "conditions") or () if each.get("type") in ("Complete", "Failed")]
        since = max((time_of(each.get("lastTransitionTime")) or 0.0 for each in ends), default=0.0)
        if (left := since + seconds - self.clock.time()) > 0:
            return Result(after=left)
        try:
            await self._client.delete(JOBS, name_of(job), namespace_of(job), propagation="Foreground", uid=job["metadata"]["uid"])
        except ApiError as error:
            if not error.is_not_found and not error.is_conflict:
                raise
        return DONE
