// The one connection to `/v1/subscribe` for all watches of the page. It connects while there are watches, and again after a loss.
import { ref } from 'vue'
import type { Resource, Scope } from '@/api/steve'

export interface Message {
  name: string
  resourceType?: string
  namespace?: string
  id?: string
  selector?: string
  data?: Resource & { error?: string }
}

/** What a watch is told. `lost`: the connection has ended, and `open` follows when there is a new one. */
export interface Watcher {
  message(message: Message): void
  open(): void
  lost(): void
}

/** When the connection was lost, in milliseconds; undefined while there is one, or none is needed. */
export const lostSince = ref<number>()

// The server pings every 25 seconds.
const SILENCE = 40_000
const PAUSES = [500, 1_000, 2_000, 5_000, 10_000]

function keyOf(name: { type: string; namespace?: string; id?: string; selector?: string }): string {
  return JSON.stringify([name.type, name.namespace ?? '', name.id ?? '', name.selector ?? ''])
}

const watchers = new Map<string, { scope: Scope; watcher: Watcher }>()
let socket: WebSocket | undefined
let failures = 0
let silence = 0
let again = 0

function url(): string {
  return `${location.origin.replace(/^http/, 'ws')}/v1/subscribe`
}

function heard(): void {
  window.clearTimeout(silence)
  silence = window.setTimeout(() => socket?.close(), SILENCE)
}

function connect(): void {
  if (socket || again || watchers.size === 0) return
  const opened = new WebSocket(url())
  socket = opened
  opened.onopen = () => {
    failures = 0
    lostSince.value = undefined
    heard()
    for (const { watcher } of watchers.values()) watcher.open()
  }
  opened.onmessage = (event: MessageEvent<string>) => {
    heard()
    const message = JSON.parse(event.data) as Message
    if (!message.resourceType) return
    watchers.get(keyOf({ ...message, type: message.resourceType }))?.watcher.message(message)
  }
  opened.onclose = () => {
    window.clearTimeout(silence)
    socket = undefined
    if (watchers.size === 0) return
    lostSince.value ??= Date.now()
    for (const { watcher } of watchers.values()) watcher.lost()
    const pause = PAUSES[Math.min(failures++, PAUSES.length - 1)] ?? 10_000
    again = window.setTimeout(retry, pause)
  }
}

/** Connect now instead of after the pause. */
export function retry(): void {
  window.clearTimeout(again)
  again = 0
  connect()
}

function send(scope: Scope, more: object): void {
  if (socket?.readyState !== WebSocket.OPEN) return
  const { type, ...rest } = scope
  socket.send(JSON.stringify({ resourceType: type, ...rest, ...more }))
}

/** True if there is a connection now; else `open` of the watcher tells when. */
export function follow(scope: Scope, watcher: Watcher): boolean {
  watchers.set(keyOf(scope), { scope, watcher })
  connect()
  return socket?.readyState === WebSocket.OPEN
}

export function watchFrom(scope: Scope, revision: string): void {
  send(scope, { resourceVersion: revision })
}

export function unfollow(scope: Scope): void {
  send(scope, { stop: true })
  watchers.delete(keyOf(scope))
  if (watchers.size > 0) return
  window.clearTimeout(again)
  again = 0
  lostSince.value = undefined
  socket?.close()
}
