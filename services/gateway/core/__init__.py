"""What the gateway decides: functions of values, without I/O, clock or randomness."""
