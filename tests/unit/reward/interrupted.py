"""A module of a user that cannot be imported, and says so with the wrong kind of exception."""

raise KeyboardInterrupt
