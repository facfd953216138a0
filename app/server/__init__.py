"""The API server: lets other programs use an engine, in the dialects of OpenAI and Anthropic.

`serving` listens, `http` handles a connection (h11 on asyncio), `guard` decides who has access, `service` routes paths.
`generation` turns a request (`fields`, `settings`, `tools`, `chat_request`, `responses`, `anthropic`) into an answer
(`answers`) and its JSON (`replies`). `engines` runs an engine process, or uses the one of the window that started the
server (`windowed`).

Must never import Qt, the engine, llama.cpp or `app.chats`: other programs' texts never get into a chat.
"""
