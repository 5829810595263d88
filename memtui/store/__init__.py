"""The control plane's own database: bindings, the operation log, intents and the undo journal."""
