"""Downloads that survive interruptions: ranges, side files, checksums, and a queue on disk.

Must never open a connection itself: `app.models.hub` does that.
"""
