// The kinds that the user may use, and what they may do with each. The server decides about each request; this decides what to show.
import { shallowRef } from 'vue'
import { schemas as load, type Resource, type Schema } from '@/api/steve'

const known = shallowRef<ReadonlyMap<string, Schema>>()
let loading: Promise<void> | undefined

/** Load them once; views that need no permissions don't wait for it. */
export function loadSchemas(): Promise<void> {
  loading ??= load().then(
    ({ data }) => {
      known.value = new Map(data.map((each) => [each.id, each]))
    },
    () => {
      loading = undefined
    }
  )
  return loading
}

export function forgetSchemas(): void {
  known.value = undefined
  loading = undefined
}

/** Undefined until it is known. */
export function mayList(type: string): boolean | undefined {
  return known.value && (known.value.get(type)?.collectionMethods.includes('GET') ?? false)
}

export function mayCreate(type: string): boolean {
  return known.value?.get(type)?.collectionMethods.includes('POST') ?? false
}

export function mayRemove(type: string): boolean {
  return known.value?.get(type)?.resourceMethods.includes('DELETE') ?? false
}

/** Links are permissions: `update`, `remove`, and others of a kind. */
export function may(object: Resource, link: string): boolean {
  return link in object.links
}
