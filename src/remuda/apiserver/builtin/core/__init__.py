"""The core group: one module per kind, several for pods, whose specs most other groups share."""
