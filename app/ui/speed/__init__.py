"""The Speed panel: what drafting does now and what it brings, in figures and drawings.

Must never import the chat or another window: rounds and figures are given to it.
"""
