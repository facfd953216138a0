"""The commands of the command line that need more than one call; `app.cli` registers them.

Must never import the window; no Qt.
"""
