// Columns of DataTable, and the order and choice of its rows.
import type { Sorting } from '@/store/query'

export interface Column<Row> {
  key: string
  title: string
  /** The value to sort by, and the text to filter by. */
  value: (row: Row) => string | number
  /** Share of the width; 1 by default. */
  share?: number
}

const COLLATOR = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' })

export function compare(a: string | number, b: string | number): number {
  return typeof a === 'number' && typeof b === 'number' ? a - b : COLLATOR.compare(String(a), String(b))
}

export function sorted<Row>(rows: readonly Row[], columns: readonly Column<Row>[], by: Sorting): Row[] {
  const column = columns.find((each) => each.key === by.column) ?? columns[0]
  if (!column) return [...rows]
  const keyed = rows.map((row) => ({ row, value: column.value(row) }))
  const sign = by.descending ? -1 : 1
  return keyed.sort((a, b) => sign * compare(a.value, b.value)).map((each) => each.row)
}

/** The rows that have every word of the filter somewhere. */
export function filtered<Row>(rows: readonly Row[], text: (row: Row) => string, filter: string): readonly Row[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean)
  if (words.length === 0) return rows
  return rows.filter((row) => {
    const found = text(row).toLowerCase()
    return words.every((word) => found.includes(word))
  })
}
