"""Downloads that survive anything: ranges, side files, checksums, and a queue on disk. No Qt."""
