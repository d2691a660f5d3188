// Changes of objects.
import { request } from './http'
import type { Resource } from './steve'

const pathOf = (object: Resource): string => `/v1/${object.type}/${object.id}`

/** Change these fields, as a JSON merge patch, if nothing else has changed the object since it was read. */
export function change<T extends Resource>(object: T, patch: Record<string, unknown>): Promise<T> {
  const metadata = { ...((patch.metadata as object | undefined) ?? {}), resourceVersion: object.metadata.resourceVersion }
  return request('PATCH', pathOf(object), { body: { ...patch, metadata }, type: 'application/merge-patch+json' })
}

export function remove(object: Resource): Promise<void> {
  return request('DELETE', pathOf(object))
}
