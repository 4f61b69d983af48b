"""Engines behind the port of protocol.md 13: `torch` and `emulated`, chosen by the job's spec."""
