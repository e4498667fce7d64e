"""The cost functions: what the costs grow with, and which solver is cheaper."""

from __future__ import annotations

import pytest

from monogram.errors import MemoryBudgetError
from monogram.planning import cluster_costs, inverse_costs, iterative_costs, lowrank_costs
from monogram.planning.size import guess


def test_one_eigendecomposition_is_cheaper_for_many_values_of_l2_and_few_users():
    size = guess(50_000, 4_000, 1_000_000)

    def cheaper(values, users):
        path = inverse_costs.ridge_path_cost(size, values, users, 100 * users)
        return path.flops < inverse_costs.repeated_inverses(size, values, 100 * users).flops

    assert not cheaper(5, 100)
    assert cheaper(24, 100)
    assert not cheaper(24, 50_000)
    assert inverse_costs.ridge_path_cost(size, 24, 100, 1).bytes > 3 * 8 * 4_000**2


def test_a_student_costs_more_with_its_rank_and_its_epochs():
    size = guess(29_858, 40_981, 810_128)
    small, large = (lowrank_costs.student_extra(size, rank, "float32") for rank in (64, 1000))
    assert small.bytes < large.bytes < 8 * 40_981**2
    assert lowrank_costs.student_extra(size, 64, "float32", epochs=20).columns > small.columns
    assert lowrank_costs.student_extra(size, 20_000, "float32").bytes > 8 * 40_981**2, "a third of all pairs: densely"


def test_two_steps_without_low_pass_directions_take_the_product_alone():
    size = guess(29_858, 40_981, 810_128)
    plain, filtered = (lowrank_costs.two_step_extra(size, rank, copied=100) for rank in (0, 256))
    assert (plain.bytes, plain.products, plain.advice) == (100, 1, "")
    assert filtered.products == 1
    assert filtered.bytes == 100 + filtered.avoidable
    assert "lower rank than 256" in filtered.advice


def test_epochs_cost_time_and_no_memory():
    size = guess(29_858, 40_981, 810_128)
    for solver in ("cholesky", "cg"):
        short, long = (iterative_costs.wrmf(solver, size, 64, epochs) for epochs in (1, 10))
        assert long.flops == pytest.approx(10 * short.flops)
        assert long.bytes == short.bytes
    als, newton = (iterative_costs.alternating(solver, size, 64, 5) for solver in ("als", "newton_cg"))
    assert newton.bytes > als.bytes


def test_an_l1_penalty_leaves_fewer_weights_of_slim():
    size = guess(29_858, 40_981, 810_128)
    sparse, dense = (iterative_costs.slim(size, l1, positive=False) for l1 in (5.0, 0.0))
    assert sparse.bytes < dense.bytes / 2


def test_the_cost_of_slim_stays_within_the_budget_as_long_as_a_column_fits():
    size = guess(29_858, 40_981, 810_128)
    least = iterative_costs.slim(size, 5.0, budget=0)
    for budget in (least.bytes, 1.2 * least.bytes, 100 * least.bytes):
        cost = iterative_costs.slim(size, 5.0, budget=budget)
        assert least.bytes <= cost.bytes <= budget
        assert cost.seconds <= least.seconds


def test_workers_too_small_for_the_square():
    free = [4e9] * 3
    assert cluster_costs.choose_way(10_000, 4, free, 625) == "one_worker"
    assert cluster_costs.choose_way(32_000, 4, free, 2_000) == "tiles"
    with pytest.raises(MemoryBudgetError, match=r"takes 60 GB on one worker, or 100 GB on all .*have 12 GB free"):
        cluster_costs.choose_way(100_000, 4, free, 4_096)
    with pytest.raises(MemoryBudgetError, match="or solve by tiles"):
        cluster_costs.choose_way(32_000, 4, free, 2_000, solve="one_worker")
