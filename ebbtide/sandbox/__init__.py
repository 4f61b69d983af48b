"""Runs programs that nobody trusts, with bubblewrap, and says which of their tests they passed.

Two processes share a cell without network, without environment and without a writable disk. The
`tester` holds the tests and the way out; the `candidate` runs the program, and all that it can
give to the tester is plain data. What is graded is never in the memory of what is judged.
"""
