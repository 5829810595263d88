"""Other systems' operation logs, read into a company of their own."""
