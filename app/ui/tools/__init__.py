"""Tools in the window: the process that runs servers, and the questions that servers ask the user.

Must not import the main window.
"""
