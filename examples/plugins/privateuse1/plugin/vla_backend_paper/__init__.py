"""Backend plugin for Paper Inc.. Nothing here imports torch at the top: a plugin is listed before torch is imported."""
