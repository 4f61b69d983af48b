"""Data: from files and generators to prepared rows in the blob store, and their order.

`prepare` (run as `python -m ebbtide.data.prepare`) reads and tokenises; `launch` starts it from
a service; `chunks` names and reads prepared rows; `order` says which row comes next.
"""
