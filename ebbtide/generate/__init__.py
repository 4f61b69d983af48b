"""Writes what is derived from the job's specification: reference page, JSON schema, CRDs, and what the chart is made of.

`make generate` runs it; a test fails when a committed file is not what it would write.
"""
