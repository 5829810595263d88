"""The ways in: each door takes a request from outside and passes it to the one service."""
