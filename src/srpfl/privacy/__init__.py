"""What a private run has spent, and sums that nobody can take apart.

The noise itself is an average of any algorithm: ``FedRep(average="private:1.0,0.8")``.
"""

from srpfl.privacy.accounting import Spent, epsilon, noise_for, spent

__all__ = ["Spent", "epsilon", "noise_for", "spent"]
