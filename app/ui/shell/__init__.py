"""The application and its main window: actions and menus, notices, help, single instance, shutdown.

Connects the other parts of the window. These may import nothing of it but its notices, except for the models.
"""
