"""The published method, to be read beside the paper.

    Shen, Mu, Liu, Yang, Shen: Learning Binary Codes and Binary Weights for Efficient
    Classification. Numbers of sections and equations are those of the paper.

==================  ================================================================================
`starting_codes`    the codes b_i that section 3 supposes given
`losses`            equations (3) and (8): any non-decreasing loss of the margin
`alternation`       section 3.1: W-steps (9) and (10) and B-steps (12) to (15); 3.2: (19) and (20)
`bqp`               problem (9): Algorithm 1 by a kernel, and beyond the paper a minimum cut
`ridge`             section 3.3: the hash function (1)
`classifier`        the estimator, and prediction by (21)
==================  ================================================================================

It shares the bit contract, hash function, packed model and its file with the rest of bitclass, but
no training code.
"""

from bitclass.paper.classifier import PaperClassifier
from bitclass.paper.losses import LOSSES

__all__ = ["LOSSES", "PaperClassifier"]
