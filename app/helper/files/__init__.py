"""Turns files that are attached to messages into text, in the helper process: one file for each kind.

`reading` decides by its content what a file is, whatever it is called.
"""
