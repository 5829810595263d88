"""How operations, records, amounts and plans read, for every channel: pure functions of values."""
