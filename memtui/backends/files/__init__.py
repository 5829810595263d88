"""What the read-only providers over files share: reading, browsing, searching, watching."""
