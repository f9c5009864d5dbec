"""How much device memory a run will need, found on any machine: shapes are followed, nothing is computed.

Importing this package imports no torch.
"""
