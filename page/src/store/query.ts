// Filter and sorting of a table in the address, so that a view of it can be sent to others and is there after a reload.
import { computed, type ComputedRef, type WritableComputedRef } from 'vue'
import { useRoute, useRouter } from 'vue-router'

export interface Sorting {
  column: string
  descending: boolean
}

export interface TableQuery {
  filter: WritableComputedRef<string>
  sorting: ComputedRef<Sorting>
  /** Sort by a column; by the same one once more in the other direction. */
  sortBy(column: string): void
}

export function useTableQuery(usual: Sorting): TableQuery {
  const route = useRoute()
  const router = useRouter()
  const text = (key: string): string => {
    const found = route.query[key]
    return typeof found === 'string' ? found : ''
  }
  const set = (key: string, value: string): void => {
    const query = { ...route.query }
    if (value) query[key] = value
    else delete query[key]
    void router.replace({ query, hash: route.hash })
  }
  const sorting = computed<Sorting>(() => {
    const said = text('sort')
    return said ? { column: said.replace(/^-/, ''), descending: said.startsWith('-') } : usual
  })
  return {
    filter: computed({ get: () => text('filter'), set: (value) => set('filter', value) }),
    sorting,
    sortBy(column) {
      const descending = sorting.value.column === column && !sorting.value.descending
      const isUsual = column === usual.column && descending === usual.descending
      set('sort', isUsual ? '' : `${descending ? '-' : ''}${column}`)
    }
  }
}
