"""A run's records: Parquet tables in one directory, the only interface between running and analysing.

`tables` says what is recorded, `writing` appends a round at a time, `reading` gives pandas frames back.
"""

from testbed.records.reading import RunRecords, find_runs
from testbed.records.writing import RunDirectory

__all__ = ["RunDirectory", "RunRecords", "find_runs"]
