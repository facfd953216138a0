"""The Compare window: answers written with and without a draft, side by side.

Must never import models, settings or the main window.
"""
