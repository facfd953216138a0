"""The commands of the command line that have more to them than a call; `app.cli` registers them.

Must never import the window; no Qt.
"""
