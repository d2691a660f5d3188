// What clusters wait for, and what to do: computed by the server, as for `remuda explain` (docs/waits.md).
import { request } from './http'

export interface Ref {
  group: string
  kind: string
  namespace: string
  name: string
}

export type Actor = 'user' | 'remuda' | 'provider' | 'machine' | 'other-controller'

export interface Wait {
  code: string
  subject: Ref
  on: Ref | null
  actor: Actor
  since: string | null
  message: string
  evidence: string[]
  effects: { code: string; message: string }[]
  advice: string
  commands: string[]
  waits: Wait[]
}

export interface Explanation {
  state: string
  message: string
  /** False when the controllers run elsewhere: then only conditions were read. */
  complete: boolean
  leader?: string
  waits: Wait[]
  toDo: { text: string; commands: string[] }[]
}

export interface Case {
  cluster: { namespace: string; name: string }
  subject: Ref
  message: string
  since: string | null
  commands: string[]
  nextTry?: string
}

export interface Problem {
  code: string
  actor: Actor
  advice: string
  note: boolean
  on: Ref | null
  count: number
  cases: Case[]
}

export interface Attention {
  complete: boolean
  clusters: number
  unsettled: number
  unexplained: number
  problems: Problem[]
}

export function explanation(namespace: string, name: string, signal: AbortSignal): Promise<Explanation> {
  return request('GET', `/v1-remuda/explain?cluster=${encodeURIComponent(`${namespace}/${name}`)}`, { signal })
}

export function attention(signal: AbortSignal): Promise<Attention> {
  return request('GET', '/v1-remuda/attention', { signal })
}

export interface HostLine {
  time: string
  text: string
}

/** The last line of each host of a cluster that is at work. */
export async function hostLines(namespace: string, name: string, signal: AbortSignal): Promise<Record<string, HostLine>> {
  const path = `/v3/connect/progress?cluster=${encodeURIComponent(`${namespace}/${name}`)}`
  const found = await request<{ machines?: Record<string, HostLine> }>('GET', path, { signal })
  return found.machines ?? {}
}
