"""Serving a policy over WebSocket with the protocol that DiT4DiT's robot clients speak."""
