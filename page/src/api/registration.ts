// The commands that register hosts with a cluster, or connect a cluster that exists already.
import { request } from './http'

interface Token {
  pinnedNodeCommand: string
  nodeCommand: string
  insecureNodeCommand: string
  pinnedCommand: string
  command: string
  insecureCommand: string
}

export interface Commands {
  host: string
  insecureHost: string
  connect: string
  insecureConnect: string
}

/** Commands whose token this user may not read still have this in its place. */
const HIDDEN = '{token}'

function usable(tokens: Token[], ...fields: (keyof Token)[]): string {
  for (const field of fields) {
    const found = tokens.find((each) => each[field] && !each[field].includes(HIDDEN))
    if (found) return found[field].trim()
  }
  return ''
}

export async function commands(cluster: string): Promise<Commands> {
  const { data } = await request<{ data: Token[] }>(
    'GET',
    `/v3/clusterregistrationtokens?clusterId=${encodeURIComponent(cluster)}`
  )
  return {
    host: usable(data, 'pinnedNodeCommand', 'nodeCommand'),
    insecureHost: usable(data, 'insecureNodeCommand'),
    connect: usable(data, 'pinnedCommand', 'command'),
    insecureConnect: usable(data, 'insecureCommand')
  }
}

export const ROLES = ['etcd', 'controlplane', 'worker'] as const
export type Role = (typeof ROLES)[number]

export interface Details {
  roles: readonly Role[]
  nodeName: string
  address: string
  internalAddress: string
  labels: readonly string[]
  taints: readonly string[]
}

/** A word of a shell's command line. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`
}

/** The arguments of the install script, in the order of `remuda cluster registration-command`. */
export function argumentsOf(details: Details): string {
  const found = ROLES.filter((role) => details.roles.includes(role)).map((role) => `--${role}`)
  const named: [string, string][] = [
    ['--node-name', details.nodeName],
    ['--address', details.address],
    ['--internal-address', details.internalAddress]
  ]
  for (const [option, value] of named) if (value.trim()) found.push(option, quoted(value.trim()))
  for (const label of details.labels) found.push('--label', quoted(label))
  for (const taint of details.taints) found.push('--taints', quoted(taint))
  return found.join(' ')
}
