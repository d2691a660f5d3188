// Sets the chosen theme before the first paint; src/store/theme.ts changes it.
try {
  const theme = localStorage.getItem('remuda-theme')
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme
} catch {
  // No storage: the system's theme.
}
