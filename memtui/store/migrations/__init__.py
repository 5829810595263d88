"""Alembic's migrations of the control plane's database."""
