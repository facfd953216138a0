"""Tools for models: MCP servers and a few built-in tools, in a process of their own (role ``tools``).

`messages` are exchanged between that process and the one that started it. `entries` are the servers that the user has
added, `permissions` what the user has allowed. `process` runs the servers, each in a `server`, with the library `mcp`.

Must never import Qt, the engine or llama.cpp. Only the tools process imports `mcp`. Servers get nothing from us except
what their entry names, and what they send is untrusted.
"""
