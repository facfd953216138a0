"""The Settings window, and how changes are applied.

Must never import the main window.
"""
