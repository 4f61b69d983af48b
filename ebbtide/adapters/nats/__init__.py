"""The broker over nats-py; `open_bus` gives an `ebbtide.ports.Bus`."""

from ebbtide.adapters.nats.bus import NatsBus, open_bus

__all__ = ["NatsBus", "open_bus"]
