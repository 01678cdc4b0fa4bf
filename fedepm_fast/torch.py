"""PyTorch models as losses of flat vectors, for `run_callables` and `client.Client`.

Needs the extra ``torch``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._common.extras import require
from ._common.validation import check_array, check_int

torch: Any = require("torch", "torch", "fedepm_fast.torch")

Array = NDArray[np.float64]


class FlatModel:
    """A model whose parameters lie one after the other in one vector.

    The parameters become views of one tensor, and their gradients of another, so that neither is
    gathered or scattered. The clients of a simulation can share one model: each loss puts its point
    into it first.

    Parameters
    ----------
    model : torch.nn.Module
        Its trainable parameters have one dtype and one device, and keep both. Others, and buffers,
        stay as they are and are not federated.

    Raises
    ------
    TypeError, ValueError
        If it is no module, or has no trainable parameters, or such of several dtypes or devices.

    Attributes
    ----------
    features : int
        Number of parameters, n.

    Examples
    --------
    >>> import torch
    >>> from fedepm_fast.torch import FlatModel
    >>> flat = FlatModel(torch.nn.Linear(3, 1, dtype=torch.float64))
    >>> loss = flat.loss(torch.nn.functional.mse_loss, torch.ones(5, 3).double(), torch.ones(5, 1))
    >>> value, gradient = loss(flat.x)
    >>> gradient.shape, gradient.dtype
    ((4,), dtype('float64'))
    """

    def __init__(self, model: Any) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        parameters = [p for p in model.parameters() if p.requires_grad]
        kinds = {(str(p.dtype), str(p.device)) for p in parameters}
        if len(kinds) != 1:
            found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
            raise ValueError(
                "model must have trainable parameters of one dtype on one device, got "
                f"{found or 'none'}"
            )
        self.model = model
        self.features = sum(p.numel() for p in parameters)
        first = parameters[0]
        self._flat = torch.empty(self.features, dtype=first.dtype, device=first.device)
        self._gradient = torch.zeros_like(self._flat)
        self._parameters = parameters
        self._views: list[tuple[Any, Any]] = []
        start = 0
        for p in parameters:
            piece = slice(start, start + p.numel())
            start += p.numel()
            values, slopes = self._flat[piece].view(p.shape), self._gradient[piece].view(p.shape)
            values.copy_(p.detach())
            self._views.append((values, slopes))
            p.data, p.grad = values, slopes

    @property
    def x(self) -> Array:
        """The parameters as a new vector, float64 of shape (n,)."""
        self._check()
        return _vector(self._flat)

    def load(self, x: ArrayLike) -> None:
        """Put a point of shape (n,) into the model, in its dtype.

        Raises
        ------
        ValueError, TypeError
            If `x` is no such vector, or not finite in that dtype.
        """
        self._check()
        point = torch.from_numpy(check_array("x", x, shape=(self.features,)))
        with torch.no_grad():
            self._flat.copy_(point)
            if not torch.isfinite(self._flat).all():
                raise ValueError(f"x must be finite in the dtype of the model, {self._flat.dtype}")

    def loss(
        self,
        loss_fn: Callable[[Any, Any], Any],
        X: Any,
        y: Any,
        *,
        batch_size: int | None = None,
    ) -> Callable[[ArrayLike], tuple[float, Array]]:
        """The loss of the model on one client's rows.

        Parameters
        ----------
        loss_fn : callable
            ``loss_fn(model(X), y)``, a tensor of one number: the mean over the rows.
        X, y : tensor
            The client's rows and targets, where the model is.
        batch_size : int, optional
            Rows at a time, to bound memory; all by default. The loss and its gradient are those of
            all rows either way.

        Returns
        -------
        callable
            ``value, gradient = loss(x)`` with a float and a new float64 vector of shape (n,). It
            leaves `x` in the model. Its attribute ``batch_gradient(x, rows)`` is the gradient of
            the mean loss of some rows, as algorithms with batches need it.
        """
        if not callable(loss_fn):
            raise TypeError(f"loss_fn must be callable, got {type(loss_fn).__name__}")
        rows = len(X)
        if rows == 0 or len(y) != rows:
            raise ValueError(f"X and y must hold the same rows, at least 1: {rows} and {len(y)}")
        size = rows if batch_size is None else check_int("batch_size", batch_size, low=1)

        def value_and_gradient(x: ArrayLike) -> tuple[float, Array]:
            self.load(x)
            self._gradient.zero_()
            total = 0.0
            with torch.enable_grad():
                for k in range(0, rows, size):
                    part, target = X[k : k + size], y[k : k + size]
                    value = loss_fn(self.model(part), target)
                    if size < rows:  # means of batches, by their shares of the rows
                        value = value * (len(part) / rows)
                    value.backward()
                    total += float(value.detach())
            self._check()
            return total, _vector(self._gradient)

        def batch_gradient(x: ArrayLike, rows: ArrayLike) -> Array:
            self.load(x)
            self._gradient.zero_()
            chosen = torch.as_tensor(np.asarray(rows, np.int64), device=X.device)
            with torch.enable_grad():
                loss_fn(self.model(X[chosen]), y[chosen]).backward()
            self._check()
            return _vector(self._gradient)

        value_and_gradient.batch_gradient = batch_gradient  # type: ignore[attr-defined]
        return value_and_gradient

    def _check(self) -> None:
        """Raise RuntimeError if the parameters have been taken out of the vector."""
        for p, (values, slopes) in zip(self._parameters, self._views, strict=True):
            if p.grad is None:  # Module.zero_grad sets it so
                p.grad = slopes
            if p.data_ptr() != values.data_ptr() or p.grad.data_ptr() != slopes.data_ptr():
                raise RuntimeError(
                    "the model's parameters are no longer those of its FlatModel: it was moved, "
                    "converted, or given to another FlatModel"
                )


def _vector(tensor: Any) -> Array:
    found: Array = tensor.detach().to("cpu", torch.float64, copy=True).numpy()
    return found
