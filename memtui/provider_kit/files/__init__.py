"""The common base of the providers over files: reading, browsing, searching and watching."""
