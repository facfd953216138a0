"""The application and its main window: actions and menus, notices, help, one instance, the end.

It connects the other parts of the window. Those may import its notices, and nothing else of it but for the models.
"""
