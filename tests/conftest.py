"""Shared by all tests: the integration mark, the folder of public data sets, a small log."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest


def own_cores(cores: set[int], worker: int, workers: int) -> set[int]:
    """The cores of one of the processes that pytest-xdist starts; a single one where there are more processes."""
    return set(sorted(cores)[worker % len(cores) :: workers])


# Where the threads of several processes share cores, those of BLAS wait in loops for each other. Each process of
# pytest-xdist, and what it starts, gets cores of its own, before BLAS is loaded and counts them.
if "PYTEST_XDIST_WORKER" in os.environ and hasattr(os, "sched_setaffinity"):
    number, workers = int(os.environ["PYTEST_XDIST_WORKER"][2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.sched_setaffinity(0, own_cores(os.sched_getaffinity(0), number, workers))

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402
from hypothesis import settings  # noqa: E402

# A background job inherits SIGINT as ignored, and so would every process that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start hundreds of processes; without bytecode files each of them would compile the whole package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("repository", deadline=None, print_blob=True)
settings.load_profile("repository")

ROOT = Path(__file__).parents[1]

# Folders, files and tests that start processes, servers, clusters or a browser, run the documentation, or take more
# than about 1.5 seconds (with all parameters: 3). `make check` excludes them, `make test` runs them. A test can also
# carry the mark itself.
INTEGRATION = (
    "cli/",
    "cluster/",
    "golden/",
    "server/",
    "test_docs.py",
    "data/test_public.py",
    "data/test_spill.py",
    "planning/test_plan.py",
    "models/test_disk.py",
    "testing/test_contract.py",
    "tuning/test_epochs.py",
    "tuning/test_search.py",
    "engine/inverse/test_tiled_cholesky.py::test_a_process_that_was_killed",
    "engine/iterative/test_wrmf.py::test_the_gradient_is_zero_in_the_rows_just_solved",
    "engine/lowrank/test_students.py::test_the_loops_end_below_the_closed_forms_and_near_the_best",
    "engine/lowrank/test_students.py::test_zero_diagonal_ends_near_the_best_under_its_constraint",
    "evaluation/test_protocol.py::test_a_model_that_learned_from_the_test_is_told",
    "evaluation/test_protocol.py::test_a_model_with_other_items_is_aligned_by_their_ids",
    "models/test_baselines.py::test_the_contract",
    "models/test_matrix_free.py::test_refined_lists_are_the_exact_lists",
    "models/test_sparse.py::test_the_contract",
    "models/test_tempered.py::test_updates_equal_a_fit_with_the_recorded_factor",
    "models/test_two_step.py::test_a_fit_stays_within_its_plan",
    "models/test_updates.py::test_any_order_of_updates_equals_a_fit",
    "models/test_observed.py::test_weights_between_epochs_equal_those_of_a_shorter_fit",
    "tuning/test_group_runner.py::test_shared_is_alone",
    "engine/lowrank/test_spectrum.py::test_lanczos_finds_the_leading_pairs",
    "models/test_sparse.py::test_slim_meets_the_conditions_of_its_minimum",
    "models/test_updates.py::test_changed_is_a_fit_with_other_parameters",
    "models/test_expansion.py::test_expanded_weights_are_those_of_the_primal",
    "models/test_expansion.py::test_the_fit_stays_within_its_plan",
    "models/test_expansion.py::test_the_file_is_written_with_less_memory",
    "models/test_files.py::test_a_loaded_model_is_bit_equal",
    "models/test_expected_quadratic.py::test_the_contract",
    "models/test_expected_quadratic.py::test_the_fit_stays_within_its_plan",
    "models/test_sessions.py::test_the_fit_stays_within_its_plan",
    "engine/iterative/test_rg2.py::test_the_weighted_penalty_ends_at_the_closed_form",
    "ranking/test_rank.py::test_queries_ranked_together_have_the_bits_of_single_queries",
    "models/test_updates.py::test_new_items_then_users_are_a_fit_on_the_larger_catalogue",
    "models/test_pruning.py::test_the_largest_of_each_column_stay",
    "models/test_students.py::test_every_solver_keeps_the_contract",
    "models/test_matrix_free.py::test_the_contract",
    "models/test_students.py::test_the_dlae_is_optimal_among_all_of_its_rank",
    "models/test_sparse.py::test_slim_is_no_worse_than_a_general_optimiser",
    "models/test_updates.py::test_add_then_forget_is_the_identity",
    "gradient/test_autoencoders.py::test_training_ranks_better_than_popularity",
    "gradient/test_autoencoders.py::test_a_fit_stays_within_its_plan",
    "gradient/test_linear.py::test_training_ranks_better_than_popularity",
    "gradient/test_linear.py::test_emphasised_denoising_ends_at_low_rank_edlae",
    "models/test_factorization.py::test_the_contract_with_other_parameters",
    "engine/inverse/test_tiled_cholesky.py::test_memory_stays_in_the_budget",
    "engine/inverse/test_tiled_cholesky.py::test_stopped_at_any_write_it_ends_with_the_same_bits",
    "engine/lowrank/test_students.py::test_large_ones_go_through_lanczos_to_the_same",
    "models/test_files.py::test_every_byte_of_the_header_flipped_is_an_error_or_the_same_model",
    "models/test_full_rank.py::test_real_data_agrees_with_numpy",
    "models/test_refresh.py",
    "models/test_registry.py::test_a_registered_model_with_axes_is_tuned_without_a_space",
    "models/test_tempered.py::test_the_fit_stays_within_its_plan",
    "models/test_two_step.py::test_small_parts_of_a_log_do_not_take_the_place_of_directions",
    "models/test_two_step.py::test_the_dual_ranks_by_its_scores",
    "gradient/test_factorization.py::test_the_contract",
    "gradient/test_graph_models.py::test_the_contract",
    "gradient/test_ranking.py::test_the_contract",
    "gradient/test_trainer.py::test_a_killed_process_resumes",
    "gradient/test_trainer.py::test_the_fit_stays_within_its_plan",
    "gradient/test_trainer.py::test_torch_is_imported_only_for_a_fit",
    "reproduce/test_tuned.py",
    "tuning/test_plan.py",
    "tuning/test_report.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the integration tests."""
    for item in items:
        name = f"{item.path.relative_to(ROOT / 'tests').as_posix()}::{item.nodeid.partition('::')[2]}"
        if name.startswith(INTEGRATION):
            item.add_marker("integration")


def data_folder() -> Path | None:
    folder = Path(os.environ.get("MONOGRAM_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


@pytest.fixture
def public_data():
    folder = data_folder()
    if folder is None:
        pytest.skip("no public data sets: set MONOGRAM_DATA to their folder")
    return folder


@pytest.fixture
def world():
    """60 users × 25 items, weights 1, with one item without users and one user without items."""
    rng = np.random.default_rng(7)
    dense = (rng.random((60, 25)) < rng.uniform(0.05, 0.5, 25)).astype(np.float32)
    dense[:, 13] = 0
    dense[5] = 0
    return sp.csr_array(dense)
