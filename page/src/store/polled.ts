// An answer that the server computes for each request, asked for again and again while its view is shown and the page is visible.
//
// It has the states of a live list (resources.ts), so that LiveStates shows it like one.
import { onScopeDispose, shallowRef, toValue, watch, type MaybeRefOrGetter } from 'vue'
import { asFailure, type Failure } from '@/api/http'
import type { LiveSource, Phase } from './resources'

export interface Polled<T> extends LiveSource {
  readonly value: T | undefined
}

const FINAL: ReadonlySet<string> = new Set(['forbidden', 'missing', 'invalid', 'credentials'])

/** `load` is repeated after `pause` milliseconds, and at once when `key` changes; nothing is asked while it is undefined. */
export function usePolled<T>(
  key: MaybeRefOrGetter<string | undefined>,
  load: (signal: AbortSignal) => Promise<T>,
  pause: number
): Polled<T> {
  const value = shallowRef<T>()
  const phase = shallowRef<Phase>('idle')
  const failure = shallowRef<Failure>()
  const staleSince = shallowRef<number>()
  let loading: AbortController | undefined
  let timer = 0

  async function ask(): Promise<void> {
    window.clearTimeout(timer)
    loading?.abort()
    const own = (loading = new AbortController())
    try {
      const found = await load(own.signal)
      if (own.signal.aborted) return
      value.value = found
      phase.value = 'ready'
      failure.value = undefined
      staleSince.value = undefined
    } catch (error) {
      if (own.signal.aborted) return
      failed(asFailure(error))
    }
    if (failure.value && FINAL.has(failure.value.kind)) return
    timer = window.setTimeout(again, pause)
  }

  function again(): void {
    if (document.hidden) timer = window.setTimeout(again, pause)
    else void ask()
  }

  function failed(found: Failure): void {
    if (phase.value === 'ready' && !FINAL.has(found.kind)) {
      staleSince.value ??= Date.now()
      return
    }
    value.value = undefined
    phase.value = 'failed'
    failure.value = found
    staleSince.value = undefined
  }

  function stop(): void {
    window.clearTimeout(timer)
    loading?.abort()
  }

  watch(
    () => toValue(key),
    (wanted) => {
      stop()
      value.value = undefined
      phase.value = wanted === undefined ? 'idle' : 'loading'
      if (wanted !== undefined) void ask()
    },
    { immediate: true }
  )
  onScopeDispose(stop)
  return {
    get value() {
      return value.value
    },
    get phase() {
      return phase.value
    },
    get failure() {
      return failure.value
    },
    get staleSince() {
      return staleSince.value
    },
    reload: () => void ask()
  }
}
