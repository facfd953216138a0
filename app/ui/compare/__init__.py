"""The Compare window: answers written plain and with a draft, side by side.

Must never import models, settings or the main window.
"""
