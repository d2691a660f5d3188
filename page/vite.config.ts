// Builds the page into the Python package that serves it (src/remuda/gateway/server/dashboard.py).
import vue from '@vitejs/plugin-vue'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vite'

const SERVER = process.env.REMUDA_SERVER ?? 'https://127.0.0.1:8443'
// Paths of the server that the page asks, for `make page-dev`.
const API = ['/v1', '/v3', '/v3-public', '/v1-remuda', '/k8s', '/rancherversion']

export default defineConfig(({ command }) => ({
  // The server puts the address of the build in front of the relative paths in index.html.
  base: command === 'serve' ? '/dashboard/' : './',
  plugins: [vue()],
  resolve: { alias: { '@': fileURLToPath(new URL('./src', import.meta.url)) } },
  build: {
    outDir: fileURLToPath(new URL('../src/remuda/gateway/page', import.meta.url)),
    emptyOutDir: true,
    target: 'es2022',
    reportCompressedSize: false,
    modulePreload: { polyfill: false },
    // No data: addresses for fonts and scripts: the Content-Security-Policy has none.
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        entryFileNames: '[name].js',
        chunkFileNames: '[name].js',
        assetFileNames: '[name][extname]'
      }
    }
  },
  server: {
    proxy: Object.fromEntries(
      API.map((path) => [
        path,
        {
          target: SERVER,
          secure: false,
          changeOrigin: true,
          ws: true,
          // The server accepts changes and sockets from its own origin only.
          headers: { origin: SERVER }
        }
      ])
    )
  }
}))
