"""All Delta tables by full name: a public interface. Columns may be added, but never renamed or dropped."""

from types import MappingProxyType

from schemas.tables.bronze import BRONZE_TABLES
from schemas.tables.declare import Column, Table
from schemas.tables.gold import GOLD_TABLES
from schemas.tables.silver import SILVER_TABLES
from schemas.tables.simulation import SIMULATION_TABLES
from schemas.tables.state import STATE_TABLES

TABLES = MappingProxyType(
    {
        table.full_name: table
        for table in (*BRONZE_TABLES, *SILVER_TABLES, *GOLD_TABLES, *STATE_TABLES, *SIMULATION_TABLES)
    }
)

__all__ = ["TABLES", "Column", "Table"]
