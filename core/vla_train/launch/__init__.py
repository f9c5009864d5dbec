"""From a checked configuration to running processes. The launching process imports no torch."""
