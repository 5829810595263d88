"""The operation log at scale: its sealed archive, reading it, SQL over it and its proof."""
