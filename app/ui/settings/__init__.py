"""The Settings window, and how settings reach what uses them.

Must never import the main window.
"""
