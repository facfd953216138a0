"""The engine as the window sees it: its interface, its process, the loaded pair, trials of new pairs. No widgets."""
