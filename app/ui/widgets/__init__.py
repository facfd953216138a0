"""The parts of every window: theme, icons, small controls, units, and the lanes for slow work.

Must never import the other parts of the window.
"""
