"""Delete a whole selection, one object at a time, and answer with what there was."""

from __future__ import annotations

from dataclasses import replace

from remuda.kube.errors import ApiError

from .call import Call, DeleteOptions, ListOptions
from .context import Api
from .delete import check_options, delete
from .list import Page, list_


async def delete_collection(api: Api, call: Call, listed: ListOptions, options: DeleteOptions) -> Page:
    check_options(options)
    page = await list_(api, call, listed)
    for entry in page.entries:
        single = replace(call, namespace=entry.namespace, name=entry.name)
        try:
            await delete(api, single, replace(options))
        except ApiError as error:
            if not error.is_not_found:
                raise
    return page
