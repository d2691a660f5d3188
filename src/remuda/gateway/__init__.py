"""The one HTTPS door: who comes in, with what, and what is remembered of it. Rooms are small and know nothing of each other."""
