"""The Models window and the Open models dialog: library, downloads, Hugging Face, memory, and their services.

Must never import the Compare window or the Speed panel.
"""
