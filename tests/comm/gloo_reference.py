#!/usr/bin/env python3
"""Runs collectives with Gloo on a few local processes and stores, per case, every rank's inputs and outputs.

The file is a dictionary of tensors that torch::pickle_load reads: `CASE/in/RANK` and `CASE/out/RANK`, where CASE is
`COLLECTIVE-OPERATION-TYPE`. gloo_test.cc repeats the cases over MPI.
"""

import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist

RANKS = 3
ELEMENTS = 1001  # no multiple of the ranks, nor of a piece
FLOATS = {"Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16}
INTEGERS = {"Byte": torch.uint8, "Char": torch.int8, "Int": torch.int32, "Long": torch.int64}
REDUCTIONS = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN,
              "max": dist.ReduceOp.MAX}  # fmt: skip


def cases():
    for type_name, dtype in (FLOATS | INTEGERS).items():
        for operation in REDUCTIONS:
            yield "allreduce", operation, type_name, dtype
    for type_name, dtype in {"Float": torch.float32, "Long": torch.int64}.items():
        yield "broadcast", "from1", type_name, dtype
        yield "allgather", "all", type_name, dtype
        yield "reduce_scatter", "sum", type_name, dtype


def make_input(dtype, elements, generator):
    """Small numbers, so that sums and products of integers stay in range."""
    if dtype.is_floating_point:
        return torch.randn(elements, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(0, 5, (elements,), generator=generator).to(dtype)


def run_case(collective, operation, tensor):
    if collective == "allreduce":
        result = tensor.clone()
        dist.all_reduce(result, REDUCTIONS[operation])
    elif collective == "broadcast":
        result = tensor.clone()
        dist.broadcast(result, 1)
    elif collective == "allgather":
        parts = [torch.empty_like(tensor) for _ in range(RANKS)]
        dist.all_gather(parts, tensor)
        result = torch.cat(parts)
    else:
        result = torch.empty(tensor.numel() // RANKS, dtype=tensor.dtype)
        dist.reduce_scatter(result, list(tensor.clone().chunk(RANKS)), REDUCTIONS[operation])
    return result


def run_rank(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    generator = torch.Generator().manual_seed(7 + rank)
    results = {}
    for collective, operation, type_name, dtype in cases():
        name = f"{collective}-{operation}-{type_name}"
        tensor = make_input(dtype, RANKS * ELEMENTS, generator)
        results[f"{name}/in/{rank}"] = tensor
        results[f"{name}/out/{rank}"] = run_case(collective, operation, tensor)
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def main():
    target = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_rank, (folder,), nprocs=RANKS)
        results = {}
        for rank in range(RANKS):
            results |= torch.load(f"{folder}/{rank}.pt")
    torch.save(results, target)


if __name__ == "__main__":
    main()
