"""Tools in the window: the process that runs servers, and what servers ask the user.

Must not import the main window.
"""
