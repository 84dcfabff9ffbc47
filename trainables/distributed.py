"""Collectives that also work without a process group."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

BUCKET_BYTES = 32 * 2**20


def active() -> bool:
    """True in a gang of more than one worker."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def rank() -> int:
    return dist.get_rank() if active() else 0


def world_size() -> int:
    return dist.get_world_size() if active() else 1


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local: torch.Tensor) -> torch.Tensor:
        ctx.rows = local.shape[0]
        parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        start = dist.get_rank() * ctx.rows
        return grad[start : start + ctx.rows]


def gather(local: torch.Tensor) -> torch.Tensor:
    """(rows, ...) on each rank -> (world_size * rows, ...) on every rank, in rank order.

    Every rank must bring the same number of rows and must compute the same loss from the result: then
    the gradient of that loss with respect to this rank's rows is this rank's slice of the incoming
    gradient, and no communication is needed in the backward pass. `sum_gradients` completes it.
    """
    return _Gather.apply(local) if active() else local


def gather_objects(local: object) -> list:
    """One picklable object per rank, in rank order, on every rank."""
    if not active():
        return [local]
    parts: list = [None] * dist.get_world_size()
    dist.all_gather_object(parts, local)
    return parts


def broadcast_object(value: object) -> object:
    """Rank 0's value, on every rank."""
    if not active():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Add the gradients of all ranks, in buckets; a parameter without one counts as zero, unless it is frozen."""
    if not active():
        return
    bucket: list[torch.Tensor] = []
    size = 0
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        bucket.append(parameter.grad)
        size += parameter.grad.numel() * parameter.grad.element_size()
        if size >= BUCKET_BYTES:
            _sum_bucket(bucket)
            bucket, size = [], 0
    if bucket:
        _sum_bucket(bucket)


def _sum_bucket(gradients: list[torch.Tensor]) -> None:
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


def broadcast_code(code: int, device: torch.device) -> int:
    """Rank 0's small integer, on every rank: how a gang takes one decision at one step."""
    if not active():
        return code
    box = torch.tensor([code], dtype=torch.int32, device=device)
    dist.broadcast(box, src=0)
    return int(box.item())
