"""Tools for models: MCP servers and a few that are built in, in a process of their own (role ``tools``).

`messages` is what is said between that process and who started it; `entries` are the servers that the user has added,
`permissions` what the user has allowed. `process` runs the servers, each in `server`, through the library `mcp`.

Must never import Qt, the engine or llama.cpp. Only the process imports `mcp`. Servers get nothing of ours but what
their entry names; what they send is other people's data.
"""
