"""Learning codes and class weights: starting codes, sums over rows, W-step, B-step, alternation."""

from bitclass.training.alternation import HISTORY_DTYPE, Alternation, alternate
from bitclass.training.b_step import b_step
from bitclass.training.cca_itq import cca_itq_projection
from bitclass.training.choosing_anchors import choose_anchors
from bitclass.training.distinct import CodeWarning, make_distinct
from bitclass.training.groups import Groups
from bitclass.training.margins import Margins
from bitclass.training.refinement import Refinement, Schedule, batch_size
from bitclass.training.standardisation import standardisation
from bitclass.training.starting_codes import (
    STARTING_CODES,
    GivenCodes,
    MeanCodes,
    RandomCodes,
    start_codes,
)
from bitclass.training.statistics import Statistics, check_label_kinds
from bitclass.training.statistics_file import load_statistics, save_statistics
from bitclass.training.w_step import SOLVERS, Solver, hinge_weights, w_step

__all__ = [
    "HISTORY_DTYPE",
    "SOLVERS",
    "STARTING_CODES",
    "Alternation",
    "CodeWarning",
    "GivenCodes",
    "Groups",
    "Margins",
    "MeanCodes",
    "RandomCodes",
    "Refinement",
    "Schedule",
    "Solver",
    "Statistics",
    "alternate",
    "b_step",
    "batch_size",
    "cca_itq_projection",
    "check_label_kinds",
    "choose_anchors",
    "hinge_weights",
    "load_statistics",
    "make_distinct",
    "save_statistics",
    "standardisation",
    "start_codes",
    "w_step",
]
