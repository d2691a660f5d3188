"""How commands see single machines: `looking` reads, `telling` is pure, `terminals` are shells, `searching` finds orphans."""
