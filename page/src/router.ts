// The views by their addresses. Filters, sorting and tabs are in the address, too, so that each can be sent to others.
import { createRouter, createWebHistory, type RouteRecordRaw } from 'vue-router'
import { words } from '@/words'

declare module 'vue-router' {
  interface RouteMeta {
    title?: string
  }
}

const routes: RouteRecordRaw[] = [
  {
    path: '/',
    name: 'attention',
    component: () => import('@/views/AttentionView.vue'),
    meta: { title: words.attention.title }
  },
  {
    path: '/clusters',
    name: 'clusters',
    component: () => import('@/views/ClustersView.vue'),
    meta: { title: words.clusters.title }
  },
  {
    path: '/clusters/:namespace/:name',
    component: () => import('@/views/cluster/ClusterView.vue'),
    props: true,
    children: [
      { path: '', redirect: (to) => `${to.path.replace(/\/$/, '')}/now` },
      { path: 'now', name: 'cluster-now', component: () => import('@/views/cluster/NowTab.vue') },
      { path: 'machines', name: 'cluster-machines', component: () => import('@/views/cluster/MachinesTab.vue') },
      { path: 'register', name: 'cluster-register', component: () => import('@/views/cluster/RegisterTab.vue') },
      { path: 'snapshots', name: 'cluster-snapshots', component: () => import('@/views/cluster/SnapshotsTab.vue') },
      { path: 'access', name: 'cluster-access', component: () => import('@/views/cluster/AccessTab.vue') },
      { path: 'related', name: 'cluster-related', component: () => import('@/views/cluster/RelatedTab.vue') }
    ]
  },
  {
    path: '/:kind(machines|machinedeployments|machinesets)',
    name: 'machines',
    component: () => import('@/views/MachinesView.vue'),
    props: true,
    meta: { title: words.lists.titles.machines }
  },
  {
    path: '/:rest(.*)*',
    name: 'missing',
    component: () => import('@/views/MissingView.vue'),
    meta: { title: words.missing.title }
  }
]

export const router = createRouter({
  history: createWebHistory('/dashboard/'),
  routes,
  scrollBehavior: (to, from, saved) => saved ?? (to.path === from.path ? false : { top: 0 })
})

router.afterEach((to) => {
  const name = typeof to.params.name === 'string' ? to.params.name : to.meta.title
  document.title = name ? `${name} · ${words.product}` : words.product
})
