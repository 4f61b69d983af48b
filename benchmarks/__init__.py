"""Measurements with targets: one module each, run by `make bench NAME=...`."""
