// The entry: the session decides between the login and the frame (App.vue); every view is loaded when it is visited.
import './style/tokens.css'
import './style/base.css'
import { createApp } from 'vue'
import App from './App.vue'
import { router } from './router'
import { session } from './store/session'

// The server has a newer page: its files have other addresses, so load it.
window.addEventListener('vite:preloadError', (event) => {
  event.preventDefault()
  window.location.reload()
})

void session.begin()
createApp(App).use(router).mount('#app')
