"""Things to run: the demo, recording demonstrations."""
