"""Other systems' operation logs, read into a company of their own."""

from memtui.importing.columns import ColumnMap, column_map
from memtui.importing.fields import FIELDS
from memtui.importing.importer import BadRow, Import, ImportReport, company_for

__all__ = [
    "FIELDS",
    "BadRow",
    "ColumnMap",
    "Import",
    "ImportReport",
    "column_map",
    "company_for",
]
