// Live lists of objects: listed once, then kept up to date by a watch.
//
//   const machines = useResources<Machine>(() => ({ type: MACHINE, namespace: 'fleet-default' }))
//
// Views that show the same objects share one list, which stays for a while after the last of them. A list is one of: loading
// (nothing yet), ready, or failed (nothing to show, and why). One that is ready may be stale: what it shows was true at `since`.
import { computed, onScopeDispose, shallowRef, toValue, watch, type ComputedRef, type MaybeRefOrGetter, type ShallowRef } from 'vue'
import { asFailure, type Failure } from '@/api/http'
import { list, type Resource, type Scope } from '@/api/steve'
import { follow, unfollow, watchFrom, type Message, type Watcher } from './socket'

export type Phase = 'idle' | 'loading' | 'ready' | 'failed'

/** Something that is kept up to date. */
export interface LiveSource {
  readonly phase: Phase
  readonly failure: Failure | undefined
  /** Since when it is no longer live, in milliseconds. */
  readonly staleSince: number | undefined
  reload(): void
}

export interface LiveList<T extends Resource> extends LiveSource {
  readonly items: readonly T[]
  get(id: string): T | undefined
}

const LINGER = 20_000
const PAUSES = [500, 1_000, 2_000, 5_000, 10_000]
// Bursts of changes are shown together.
const FLUSH = 60
const FINAL: ReadonlySet<string> = new Set(['forbidden', 'missing', 'invalid', 'credentials'])

class Live implements Watcher {
  readonly objects: ShallowRef<ReadonlyMap<string, Resource>> = shallowRef(new Map())
  readonly phase = shallowRef<Phase>('loading')
  readonly failure = shallowRef<Failure>()
  readonly staleSince = shallowRef<number>()
  readonly items = computed(() => [...this.objects.value.values()])

  users = 0
  private changes = new Map<string, Resource | undefined>()
  private flushing = 0
  private pausing = 0
  private failures = 0
  private loading: AbortController | undefined
  private closing = 0
  private connected = false

  constructor(
    readonly scope: Scope,
    private readonly ended: () => void
  ) {
    // The list comes first, the watch from its revision; the connection is made meanwhile.
    this.connected = follow(scope, this)
    void this.load()
  }

  async load(): Promise<void> {
    window.clearTimeout(this.pausing)
    this.loading?.abort()
    const loading = (this.loading = new AbortController())
    try {
      const { data, revision } = await list(this.scope, loading.signal)
      if (loading.signal.aborted) return
      this.changes.clear()
      this.objects.value = new Map(data.map((each) => [each.id, each]))
      this.phase.value = 'ready'
      this.failure.value = undefined
      this.failures = 0
      this.revision = revision
      if (this.connected) this.begin()
    } catch (error) {
      if (!loading.signal.aborted) this.failed(asFailure(error))
    }
  }

  private revision = ''

  private begin(): void {
    watchFrom(this.scope, this.revision)
  }

  private failed(failure: Failure): void {
    const final = FINAL.has(failure.kind)
    if (this.phase.value !== 'ready' || final) {
      this.failure.value = failure
      this.phase.value = 'failed'
      this.objects.value = new Map()
      this.staleSince.value = undefined
    } else this.staleSince.value ??= Date.now()
    if (!final) this.later()
  }

  private later(): void {
    window.clearTimeout(this.pausing)
    const pause = PAUSES[Math.min(this.failures++, PAUSES.length - 1)]
    this.pausing = window.setTimeout(() => void this.load(), pause)
  }

  // --- the connection ---

  open(): void {
    const before = this.connected
    this.connected = true
    if (this.phase.value !== 'ready') return
    // After a loss the log of changes may have ended: list again.
    if (before || this.staleSince.value === undefined) this.begin()
    else void this.load()
  }

  lost(): void {
    this.connected = false
    if (this.phase.value === 'ready') this.staleSince.value ??= Date.now()
  }

  message({ name, data }: Message): void {
    switch (name) {
      case 'resource.start':
        this.staleSince.value = undefined
        return
      case 'resource.create':
      case 'resource.change':
        if (data) this.put(data.id, data)
        return
      case 'resource.remove':
        if (data) this.put(data.id, undefined)
        return
      case 'resource.stop':
        // Too old, other permissions, or the server ends: the next list says which.
        if (this.phase.value === 'ready') this.staleSince.value ??= Date.now()
        this.later()
    }
  }

  private put(id: string, object: Resource | undefined): void {
    this.changes.set(id, object)
    this.flushing ||= window.setTimeout(() => this.flush(), FLUSH)
  }

  private flush(): void {
    this.flushing = 0
    if (this.changes.size === 0) return
    const objects = new Map(this.objects.value)
    for (const [id, object] of this.changes) {
      if (object) objects.set(id, object)
      else objects.delete(id)
    }
    this.changes.clear()
    this.objects.value = objects
  }

  // --- its users ---

  enter(): void {
    this.users++
    window.clearTimeout(this.closing)
  }

  leave(): void {
    if (--this.users === 0) this.closing = window.setTimeout(() => this.end(), LINGER)
  }

  end(): void {
    this.loading?.abort()
    window.clearTimeout(this.closing)
    window.clearTimeout(this.pausing)
    window.clearTimeout(this.flushing)
    unfollow(this.scope)
    this.ended()
  }
}

const lists = new Map<string, Live>()

function shared(scope: Scope): Live {
  const key = JSON.stringify([scope.type, scope.namespace, scope.id, scope.selector])
  const found = lists.get(key) ?? new Live(scope, () => lists.delete(key))
  lists.set(key, found)
  return found
}

/** End all lists, when another user logs in. */
export function forgetAll(): void {
  for (const each of [...lists.values()]) each.end()
}

/** The list of `scope`, for as long as the component lives; undefined for none (a list without objects). */
export function useResources<T extends Resource>(scope: MaybeRefOrGetter<Scope | undefined>): LiveList<T> {
  const current = shallowRef<Live>()
  watch(
    () => JSON.stringify(toValue(scope) ?? null),
    () => {
      const wanted = toValue(scope)
      const found = wanted && shared(wanted)
      found?.enter()
      current.value?.leave()
      current.value = found
    },
    { immediate: true }
  )
  onScopeDispose(() => current.value?.leave())
  const items: ComputedRef<readonly T[]> = computed(() => (current.value?.items.value ?? []) as T[])
  return {
    get phase() {
      return current.value?.phase.value ?? 'idle'
    },
    get items() {
      return items.value
    },
    get failure() {
      return current.value?.failure.value
    },
    get staleSince() {
      return current.value?.staleSince.value
    },
    get: (id) => current.value?.objects.value.get(id) as T | undefined,
    reload: () => void current.value?.load()
  }
}
