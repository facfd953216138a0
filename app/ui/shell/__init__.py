"""The application and its main window: actions and menus, notices, help, one instance, the end."""
