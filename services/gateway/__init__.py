"""The gateway: REST over the job object. It holds nothing, so any number may run."""
