"""The training summary in model files."""
from bitclass.storage import ModelFileError
from bitclass.report import Report
_NOT_STORED = {"max_time", "n_jobs", "verbose"}
def summarise(parameters, report, names):
    d={"parameters":{}}
    return d
def restore(summary, known): return {}, Report(n_rows=0)
