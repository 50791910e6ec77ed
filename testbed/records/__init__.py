"""A run's records: Parquet tables in one directory, the only interface between running and analysing.

`schemas` lists the columns, `tables` makes the rows, `writer` appends rounds, and `reader` returns pandas frames.
"""

from testbed.records.reader import RunRecords, find_runs
from testbed.records.writer import RunDirectory

__all__ = ["RunDirectory", "RunRecords", "find_runs"]
