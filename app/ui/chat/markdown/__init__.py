"""Safe drawing of untrusted Markdown: cut into blocks, written, colored, tinted, shown.

Must never import the chat around it, but for the buttons of `parts`.
"""
