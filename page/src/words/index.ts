// All texts of the page. What the server says (states, messages, errors) is shown as it is.
import type { Actor } from '@/api/explain'
import type { FailureKind } from '@/api/http'

export const words = {
  product: 'Remuda',
  skip: 'Skip to the content',

  login: {
    title: 'Log in',
    server: (host: string) => `to the server ${host}`,
    username: 'User name',
    password: 'Password',
    submit: 'Log in',
    submitting: 'Logging in…',
    wrong: 'The user name or the password is wrong.',
    ended: 'Your session has ended. Log in again to continue where you were.',
    hint: 'The first start of a server prints the password of the user admin.'
  },

  password: {
    title: 'Choose a new password',
    why: 'The password that you logged in with is for the first login only.',
    current: 'Current password',
    wanted: 'New password',
    repeated: 'The new password once more',
    different: 'The two new passwords differ.',
    submit: 'Set the password',
    submitting: 'Setting the password…'
  },

  frame: {
    navigation: 'Main navigation',
    clusters: 'Clusters',
    theme: 'Theme',
    themes: { system: 'System', light: 'Light', dark: 'Dark' },
    logout: 'Log out',
    user: (name: string) => `Logged in as ${name}`
  },

  live: {
    lost: (age: string) => `The connection to the server was lost ${age} ago. This is what was known then.`,
    retry: 'Connect now',
    announce: 'The connection to the server was lost.',
    back: 'The connection to the server is back.'
  },

  states: {
    loading: (what: string) => `Loading ${what}…`,
    partial: (what: string) => `Without ${what}:`,
    unreachable: 'The server does not answer',
    again: 'Try again',
    readOnly: 'You may look at this, but not change it.'
  },

  failures: {
    credentials: 'You are not logged in',
    forbidden: 'You are not allowed to see this',
    missing: 'This does not exist',
    conflict: 'It has changed meanwhile',
    invalid: 'The server refuses the request',
    throttled: 'Too many requests',
    server: 'The server failed',
    offline: 'The server does not answer'
  } satisfies Record<FailureKind, string>,

  fixes: {
    credentials: 'Log in again.',
    forbidden: 'Ask an administrator, or an owner of the cluster, for a role.',
    missing: 'It may have been deleted, or you may not see it. Check the address.',
    conflict: 'Load it again, and repeat the change.',
    invalid: 'Correct the request as the message says.',
    throttled: 'Wait a moment, then try again.',
    server: 'The log of the server has the details. The page tries again by itself.',
    offline: 'Check that the server runs and that this machine can reach it. The page tries again by itself.'
  } satisfies Record<FailureKind, string>,

  waitSeconds: (seconds: number) => `Try again in ${seconds} s.`,

  copy: { button: 'Copy', done: 'Copied', failed: 'Select the text and copy it yourself' },

  table: {
    filter: 'Filter',
    shown: (shown: number, all: number) => (shown === all ? `${all}` : `${shown} of ${all}`),
    none: 'Nothing fits the filter.',
    clear: 'Clear the filter',
    sort: (column: string) => `Sort by ${column}`
  },

  actors: {
    user: 'you',
    remuda: 'Remuda (automatic)',
    provider: 'the infrastructure provider',
    machine: 'the host (automatic)',
    'other-controller': 'another controller'
  } satisfies Record<Actor, string>,

  attention: {
    title: 'Attention',
    what: 'what needs attention',
    none: 'Nothing needs you',
    noneHint: 'What is stuck, has failed or will expire soon appears here, with what to do about it.',
    summary: (problems: number, clusters: number) =>
      `${problems === 1 ? '1 problem' : `${problems} problems`} in ${clusters === 1 ? '1 cluster' : `${clusters} clusters`}.`,
    changing: (count: number) => `${count === 1 ? '1 cluster is' : `${count} clusters are`} being changed and ${count === 1 ? 'needs' : 'need'} nothing.`,
    unexplained: (count: number) => `${count} more are not settled; this shows the oldest.`,
    problem: (code: string, on: string | undefined) => (on ? `${code}: ${on}` : code),
    places: (count: number) => (count === 1 ? 'in 1 place' : `in ${count} places`),
    more: (count: number) => `and ${count} more`,
    notes: 'Also reported'
  },

  explain: {
    title: 'What it waits for',
    what: 'what the cluster waits for',
    toDo: 'To do:',
    waits: 'waits',
    since: 'for',
    action: (who: string) => `action: ${who}`,
    nextTry: (time: string) => `next try at ${time}`,
    command: 'A command to run',
    incomplete: (leader: string) =>
      `Only conditions were read, since the controllers run ${leader ? `on ${leader}` : 'on another server'}.`
  },

  clusters: {
    title: 'Clusters',
    what: 'clusters',
    managed: 'the health of clusters',
    machinesOf: 'the numbers of machines',
    filter: 'Filter by name, version or state',
    empty: 'There are no clusters yet',
    emptyHint: 'Declare one in YAML and apply it; it appears here at once.',
    emptyCommand: 'kubectl apply -f cluster.yaml',
    columns: {
      name: 'Name',
      health: 'Health',
      operation: 'Operation',
      version: 'Version',
      machines: 'Machines',
      age: 'Age'
    },
    ready: (ready: number, wanted: number) => `${ready} of ${wanted} ready`
  },

  cluster: {
    what: 'the cluster',
    tabs: { now: 'Now', machines: 'Machines', register: 'Register', snapshots: 'Snapshots', access: 'Access', related: 'Related' },
    tabList: 'Parts of the cluster',
    health: 'Health',
    operation: 'Operation',
    version: 'Version',
    identifier: 'Id',
    workspace: 'Workspace',
    age: 'Age'
  },

  now: {
    machines: 'Machines',
    machinesWhat: 'machines',
    noMachines: 'No machine yet',
    noMachinesHint: 'A cluster without pools gets its machines by registration.',
    register: 'Register a host',
    columns: { name: 'Name', state: 'State', roles: 'Roles', node: 'Node', version: 'Version', address: 'Address', age: 'Age' },
    pool: 'Pool',
    withoutPool: 'Registered hosts',
    conditions: 'Conditions',
    noConditions: 'The server has not reported a condition yet.',
    condition: { type: 'Condition', status: 'Status', since: 'Since', message: 'Message' }
  },

  confirm: {
    type: (word: string) => `Type ${word} to confirm`,
    busy: 'Sending…',
    cancel: 'Cancel'
  },

  machines: {
    columns: {
      name: 'Name',
      state: 'State',
      roles: 'Roles',
      node: 'Node',
      version: 'Version',
      address: 'Address',
      age: 'Age',
      acts: 'Actions'
    },
    gone: 'The cluster is gone.',
    count: (count: number) => (count === 1 ? '1 machine' : `${count} machines`),
    wanted: (count: number) => `${count} wanted`,
    size: 'Wanted',
    fewer: 'One machine fewer',
    more: 'One machine more',
    set: (count: number) => `Set to ${count}`,
    fewerMeans: (count: number) =>
      `${count === 1 ? '1 machine is' : `${count} machines are`} drained if the pool says so, and deleted. Delete a machine in the list to choose which.`,
    replace: 'Replace',
    replaceMeans: (pool: string) => `The machine is drained if its pool says so, and deleted. The pool ${pool} makes another one in its place.`,
    remove: 'Remove',
    removeMeans: 'The host leaves the cluster. Register it again to bring it back.',
    shrink: 'Delete',
    shrinkMeans: (pool: string, left: number) => `The machine is drained if its pool says so, and deleted; the pool ${pool} has ${left} then.`,
    etcdMeans: 'It has the role etcd: the server waits with it while the members that stay would have no majority.',
    config: (kind: string, count: number) => `${kind}: ${count} fields`,
    configWhat: 'the machine config',
    configMeans: 'A change of the machine config makes every machine of the pool anew.'
  },

  lists: {
    tabs: 'Kinds',
    titles: { machines: 'Machines', machinedeployments: 'MachineDeployments', machinesets: 'MachineSets' },
    filter: 'Filter by name, cluster, pool, node or state',
    none: (title: string) => `There are no ${title}`,
    noneHint: 'A cluster with machine pools has them; registered hosts are Machines, too.',
    columns: { name: 'Name', state: 'State', cluster: 'Cluster', pool: 'Pool', node: 'Node', count: 'Ready', age: 'Age' }
  },

  snapshots: {
    title: 'Snapshots of etcd',
    what: 'snapshots',
    none: 'There are no snapshots',
    noneHint: 'They are taken on schedule, before upgrades, and on request.',
    columns: { name: 'Name', state: 'State', age: 'Age', size: 'Size', version: 'Version', copies: 'Copies', acts: 'Actions' },
    state: { available: 'available', missing: 'missing', failed: 'failed' },
    copy: (storage: string, node: string) => (node ? `${storage}, taken by ${node}` : storage),
    take: 'Take one',
    takeMeans: 'Every etcd machine writes a file, and sends it to the bucket if the cluster has one. The cluster goes on meanwhile.',
    taking: (phase: string) => `Last request: ${phase}`,
    restoring: (phase: string) => `Last restore: ${phase}`,
    restore: 'Restore…',
    understood: 'Close',
    lost: 'Everything that the cluster has stored since the snapshot is lost: objects, Secrets, and who had which role in it.',
    kept: 'Machines, data on volumes, and this server’s own objects are kept. The API is down until the restore ends.',
    restoreHow: 'The command shows which objects are lost and asks before it begins:',
    remove: 'Delete',
    removeMeans: (copies: number) => `${copies === 1 ? 'Its file is' : `All ${copies} copies are`} deleted from hosts and buckets. It can’t be restored any more.`
  },

  access: {
    kubeconfig: 'Kubeconfig',
    kubeconfigHint: 'It contains a token of yours: anyone who has the file can do in this cluster what you may do.',
    download: 'Download the kubeconfig',
    none: 'The cluster has no id yet',
    endpoint: 'Endpoint through this server',
    members: 'Members',
    noMembers: 'No members',
    noMembersHint: 'Administrators of this server may use the cluster; others become members by a role in it.',
    columns: { who: 'User or group', role: 'Role' }
  },

  register: {
    what: 'the registration command',
    hosts: 'Register a host',
    hostsHint: 'Run the command on the host, as a user that may use sudo. It contains a token: anyone who has it can add hosts.',
    connect: 'Connect the cluster',
    connectHint: 'Run the command with a kubeconfig of the cluster, as its administrator. It contains a token.',
    roles: 'Roles',
    role: { etcd: 'etcd', controlplane: 'Control plane', worker: 'Worker' },
    noRole: 'Choose a role: a host without one has nothing to do.',
    advanced: 'Name, addresses, labels and taints',
    nodeName: 'Name of the node',
    nodeNameHint: 'Empty: the name of the host.',
    address: 'Public address',
    internalAddress: 'Internal address',
    addressHint: 'An address, or an interface that has it. Empty: the agent chooses.',
    labels: 'Labels',
    labelsHint: 'KEY=VALUE, one in a line.',
    taints: 'Taints',
    taintsHint: 'KEY=VALUE:EFFECT, one in a line.',
    insecure: 'Without verification of the server',
    insecureHint: 'What the host downloads and runs is not verified. Only for hosts that cannot use the usual command.',
    command: 'The command',
    none: 'There is no command yet',
    noneHint: 'The server makes one when the cluster has an id; or you may not see its token.'
  },

  related: {
    objects: 'Objects',
    noObjects: 'No related object.',
    from: 'comes from',
    to: 'refers to',
    columns: { relation: 'Relation', type: 'Type', name: 'Name' },
    events: 'Events',
    eventsWhat: 'events',
    noEvents: 'No event in the last hour',
    noEventsHint: 'Kubernetes keeps events for a limited time.',
    event: { last: 'Last seen', type: 'Type', reason: 'Reason', message: 'Message', count: 'Count' }
  },

  missing: {
    title: 'Nothing here',
    hint: 'No view has this address.',
    home: 'All clusters'
  },

  sizes: ['B', 'KiB', 'MiB', 'GiB', 'TiB'],
  units: { second: 's', minute: 'm', hour: 'h', day: 'd' },
  unknown: '—'
} as const
