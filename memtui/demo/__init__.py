"""The demo: a company at work for sixty days, the same every time."""
