"""The commands of the command line; `app.cli` registers them.

Must never import the window; no Qt.
"""
