"""A module of a user that cannot be imported, and raises what is no Exception to say so."""

import asyncio

raise asyncio.CancelledError
