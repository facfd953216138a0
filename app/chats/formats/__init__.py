"""The formats chats come and go in: one small file for each, and one table of them (`table`).

`records` defines what all of them are turned into. The helper process reads (`reading`), because the files are other
people's; texts for export are written by whoever wants them.

Must never import the store or anything else of `app.chats`: the helper process has to start quickly.
"""
