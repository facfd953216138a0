"""The chat in the window: from a typed message to a stored answer; list, transcript, composer.

Must never import the windows beside it (models, settings, compare) or the Speed panel.
"""
