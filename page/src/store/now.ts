// The present time for ages, once a second for the whole page; not while the page is hidden.
import { ref } from 'vue'

export const now = ref(Date.now())

setInterval(() => {
  if (!document.hidden) now.value = Date.now()
}, 1000)

document.addEventListener('visibilitychange', () => {
  now.value = Date.now()
})
