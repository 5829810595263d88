"""The settings that every read-only file provider shares."""

from __future__ import annotations

from pathlib import Path

from pydantic import field_validator

from memtui.contract import Model


class FilesConfig(Model):
    """What every read-only file provider is told."""

    path: Path
    """The folder or file to read; absolute, or from `~`."""
    project_id: str | None = None
    """The project that the memories belong to; unset means the whole company."""
    agent_id: str | None = None
    """The agent that the memories belong to; unset means every agent."""
    subject_id: str | None = None
    """Whom the memories are about; unset means nobody in particular."""

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        try:
            path = path.expanduser()
        except RuntimeError as error:
            raise ValueError("the home folder is not known") from error
        if not path.is_absolute() or "\0" in str(path):
            raise ValueError("give an absolute path")
        return path
