// The theme: the system's, or the one that was chosen. public/theme.js sets it before the first paint.
import { ref } from 'vue'

export type Theme = 'system' | 'light' | 'dark'
const KEY = 'remuda-theme'

function stored(): Theme {
  try {
    const found = localStorage.getItem(KEY)
    return found === 'light' || found === 'dark' ? found : 'system'
  } catch {
    return 'system'
  }
}

export const theme = ref<Theme>(stored())

export function choose(wanted: Theme): void {
  theme.value = wanted
  if (wanted === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = wanted
  try {
    if (wanted === 'system') localStorage.removeItem(KEY)
    else localStorage.setItem(KEY, wanted)
  } catch {
    // Without storage the choice lasts until the page is loaded again.
  }
}
