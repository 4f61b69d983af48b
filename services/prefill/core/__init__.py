"""Decisions of the prefill service: whose request is answered, and by what (pure)."""
