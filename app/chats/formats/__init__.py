"""The formats chats are imported from and exported to: one small file each.

All are turned into `records`. Reading (`reading`) happens in the helper process, because imported files are untrusted;
exports (`writing`) are written by the caller.

Must never import the store or anything else of `app.chats`: the helper process has to start quickly.
"""
