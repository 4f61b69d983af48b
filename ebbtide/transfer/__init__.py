"""KV from process to process, point to point, by tickets (protocol.md 6).

tickets     what a ticket allows, and when no longer (pure)
frames      an export byte by byte (docs/formats.md)
arena       a holder's files in shared memory, used again and again
shm         the transfer between processes of one host
"""
