"""Training: sums over rows, starting codes, weights and codes, hash function, refinement."""

from bitclass.training.distinct import CodeWarning
from bitclass.training.fit import Fitted, Settings, fit_model, start_statistics, update_model
from bitclass.training.statistics import Statistics
from bitclass.training.statistics_file import load_statistics, save_statistics

__all__ = [
    "CodeWarning",
    "Fitted",
    "Settings",
    "Statistics",
    "fit_model",
    "load_statistics",
    "save_statistics",
    "start_statistics",
    "update_model",
]
