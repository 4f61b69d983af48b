"""KV from process to process, point to point, by tickets (protocol.md 6).

tickets     what a ticket allows, and when no longer (pure)
frames      an export byte by byte (docs/formats.md)
arena       a holder's files in shared memory, used again and again
shm         the transfer between processes of one host
lanes       how bytes get from one process into another, and memory that is used again
desk        a holder's leases, and what is said about them
counter     where readers come to a holder
remote      the transfer between processes of any hosts, by a lane
nixl        the lane of NIXL: shared memory, TCP or RDMA
trial       whether NIXL works on this machine
ways        which transfer a process has
"""
