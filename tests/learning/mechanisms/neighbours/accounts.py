"""The plainest accounts that do what `accounting.privacy.IndividualAccounts` promises."""

import numpy as np
from scipy.sparse import csr_array


class PlainAccounts:
    """A holder's contribution is allowed while what they have spent and its cost stay within their cap."""

    def __init__(self, caps) -> None:
        self.caps = np.asarray(caps, np.float64)
        self.spent = np.zeros(len(self.caps))

    def charge(self, squared_norms: csr_array, sigma: float) -> csr_array:
        allowed = np.zeros(squared_norms.nnz, np.bool_)
        for row in range(squared_norms.shape[0]):
            for place in range(squared_norms.indptr[row], squared_norms.indptr[row + 1]):
                holder, cost = squared_norms.indices[place], squared_norms.data[place] / sigma**2
                if self.spent[holder] + cost <= self.caps[holder]:
                    allowed[place] = True
                    self.spent[holder] += cost
        return csr_array((allowed, squared_norms.indices, squared_norms.indptr), shape=squared_norms.shape)
