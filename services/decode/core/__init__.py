"""Decisions of a decode actor: what it holds, what it answers, what it does next (pure)."""
