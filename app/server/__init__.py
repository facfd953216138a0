"""A server that lets other programs use an engine, in the OpenAI dialect.

`engine` is what it needs of an engine; `own_engine` drives a process of its own through `app.client`, `window_engine`
asks that of the window which started the server (`windowed`). `http` reads and writes one connection (h11 on asyncio),
`guard` decides who may ask, `service` what is answered. `chat_request`,
`responses_request` and `anthropic_request` turn JSON into what an engine is asked, with `tool_request` and `images`.
`said` reads an answer off the engine's events, with the calls that `call_reader` finds; `replies`, `responses_replies`
and `anthropic_replies` turn that into JSON again.

Must never import Qt, the engine, llama.cpp or `app.chats`: the texts of other programs go into no chat.
"""
