"""The contract as it was in version 1.0, and a plugin of that time; both stay as they are until version 2."""
