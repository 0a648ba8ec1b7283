"""Training: sums over rows, starting codes, weights and codes, hash function and refinement."""

from bitclass.training.fit import Fitted, fit_model, start_statistics, update_model
from bitclass.training.settings import Epoch, Settings
from bitclass.training.statistics import Statistics
from bitclass.training.statistics_file import load_statistics, save_statistics

__all__ = [
    "Epoch",
    "Fitted",
    "Settings",
    "Statistics",
    "fit_model",
    "load_statistics",
    "save_statistics",
    "start_statistics",
    "update_model",
]
