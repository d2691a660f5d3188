// Times as people read them: the two largest units, as kubectl writes ages.
import { words } from '.'

const UNITS: [keyof typeof words.units, number][] = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1]
]

export function age(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000))
  const at = UNITS.findIndex(([, size]) => seconds >= size)
  if (at < 0) return `0${words.units.second}`
  const [unit, size] = UNITS[at]!
  const first = Math.floor(seconds / size)
  const next = UNITS[at + 1]
  // Seconds of an hour, or hours of a week, say nothing.
  if (!next || first >= 10 || unit === 'hour') return `${first}${words.units[unit]}`
  const rest = Math.floor((seconds % size) / next[1])
  return rest ? `${first}${words.units[unit]}${rest}${words.units[next[0]]}` : `${first}${words.units[unit]}`
}

/** A size as people read it, in powers of 1024. */
export function bytes(count: number): string {
  const units = words.sizes
  const at = count > 0 ? Math.min(units.length - 1, Math.floor(Math.log2(count) / 10)) : 0
  return `${(count / 1024 ** at).toFixed(at === 0 ? 0 : 1)} ${units[at]}`
}

const FORMAT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })

export function moment(milliseconds: number): string {
  return FORMAT.format(milliseconds)
}
